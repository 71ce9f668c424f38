from __future__ import annotations

from typing import assert_never

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.outcomes import Dead, Delivered, Later, Outcome, OutcomeKind, Reason
from common.policy import PRESETS, Policy
from common.units import Duration
from dispatcher.decide import decide, split

AT = 1_764_438_120_000
POLICY = Policy(attempts=3, base=2.0, cap=60.0, max_age=Duration(3600))
RETRIED = {
    OutcomeKind.FAILED: Reason.ATTEMPTS,
    OutcomeKind.TIMEOUT: Reason.ATTEMPTS,
    OutcomeKind.CONNECTION: Reason.ATTEMPTS,
    OutcomeKind.THROTTLED: Reason.ATTEMPTS,
    OutcomeKind.GONE: Reason.REJECTED,
    OutcomeKind.REFUSED: Reason.REFUSED,
}
AT_ONCE = {OutcomeKind.REJECTED: Reason.REJECTED, OutcomeKind.RENDER: Reason.RENDER}


def after(
    outcome: Outcome, attempt: int = 1, age: float = 0, draw: float = 0.5, throttles: int = 1
) -> Delivered | Later | Dead:
    return decide(outcome, attempt, AT, AT + round(age * 1000), POLICY, 600.0, lambda: draw, throttles)


def test_every_kind_of_outcome_is_decided_in_this_table() -> None:
    assert {OutcomeKind.DELIVERED, *RETRIED, *AT_ONCE} == set(OutcomeKind)


def test_delivered() -> None:
    assert after(Outcome(OutcomeKind.DELIVERED, 204), attempt=3, age=7200) == Delivered(204)


@pytest.mark.parametrize("kind", RETRIED)
def test_a_failure_spends_an_attempt_and_waits(kind: OutcomeKind) -> None:
    assert after(Outcome(kind, 500, "no")) == Later(1.0, spends=True, status=500, error="no")


@pytest.mark.parametrize(("kind", "reason"), RETRIED.items())
def test_the_last_attempt_is_the_last(kind: OutcomeKind, reason: Reason) -> None:
    assert isinstance(after(Outcome(kind), attempt=2), Later)
    assert after(Outcome(kind, 500, "no"), attempt=3) == Dead(reason, 500, "no")


@pytest.mark.parametrize(("kind", "reason"), AT_ONCE.items())
def test_what_no_repeat_can_mend_dies_at_once(kind: OutcomeKind, reason: Reason) -> None:
    assert after(Outcome(kind, 422, "no")) == Dead(reason, 422, "no")


@pytest.mark.parametrize(
    ("attempt", "longest"), [(1, 2.0), (2, 4.0), (3, 8.0), (5, 32.0), (6, 60.0), (2000, 60.0)]
)
def test_backoff_doubles_up_to_the_cap(attempt: int, longest: float) -> None:
    policy = Policy(attempts=5000, base=2.0, cap=60.0, max_age=Duration(3600))
    decision = decide(Outcome(OutcomeKind.FAILED), attempt, AT, AT, policy, 600.0, lambda: 0.75)
    assert decision == Later(0.75 * longest, spends=True)


@pytest.mark.parametrize(("asked", "waits"), [(0.0, 1), (0.2, 1), (3.0, 3), (599.5, 599.5), (1e9, 600)])
def test_retry_after_is_kept_within_a_second_and_the_cap(asked: float, waits: float) -> None:
    outcome = Outcome(OutcomeKind.THROTTLED, 429, retry_after=asked)
    assert after(outcome, draw=0.0) == Later(waits, spends=False, status=429)


def test_retry_after_is_a_floor_that_backoff_spreads() -> None:
    outcome = Outcome(OutcomeKind.THROTTLED, 429, retry_after=30.0)
    assert after(outcome, draw=0.5) == Later(31.0, spends=False, status=429)


def test_who_is_told_when_to_come_back_waits_unspent_also_after_the_last_attempt() -> None:
    outcome = Outcome(OutcomeKind.THROTTLED, 429, retry_after=1.0)
    assert after(outcome, attempt=3, throttles=3, draw=0.0) == Later(1.0, spends=False, status=429)


def test_too_many_refusals_in_a_row_spend_attempts() -> None:
    outcome = Outcome(OutcomeKind.THROTTLED, 429, "no", 1.0)
    assert after(outcome, throttles=4, draw=0.0) == Later(1.0, spends=True, status=429, error="no")
    assert after(outcome, attempt=3, throttles=4) == Dead(Reason.ATTEMPTS, 429, "no")


def test_what_would_be_due_after_max_age_dies_now() -> None:
    assert isinstance(after(Outcome(OutcomeKind.FAILED), age=3599), Later)
    assert after(Outcome(OutcomeKind.FAILED, 500, "no"), age=3599.5) == Dead(Reason.MAX_AGE, 500, "no")
    late = Outcome(OutcomeKind.THROTTLED, 429, "no", 600.0)
    assert after(late, age=3100) == Dead(Reason.MAX_AGE, 429, "no")


def test_used_up_attempts_come_before_age() -> None:
    assert after(Outcome(OutcomeKind.FAILED), attempt=3, age=1e6) == Dead(Reason.ATTEMPTS)


@given(
    kind=st.sampled_from(OutcomeKind),
    attempt=st.integers(1, 10**9),
    age=st.integers(-1000, 10**12),
    asked=st.none() | st.floats(0, 1e12),
    draw=st.floats(0, 1, exclude_max=True),
    policy=st.sampled_from(sorted(PRESETS)).map(PRESETS.__getitem__)
    | st.builds(
        Policy,
        attempts=st.integers(1, 10**9),
        base=st.floats(0, 1e12),
        cap=st.floats(0, 1e9),
        max_age=st.floats(0, 1e9).map(Duration),
    ),
    cap=st.floats(1, 1e6),
    throttles=st.integers(0, 20),
)
def test_properties(
    kind: OutcomeKind,
    attempt: int,
    age: int,
    asked: float | None,
    draw: float,
    policy: Policy,
    cap: float,
    throttles: int,
) -> None:
    outcome = Outcome(kind, retry_after=asked)
    decision = decide(outcome, attempt, AT, AT + age, policy, cap, lambda: draw, throttles)
    match decision:
        case Delivered():
            assert kind is OutcomeKind.DELIVERED
        case Later():
            patient = kind is OutcomeKind.THROTTLED and asked is not None and throttles <= policy.attempts
            assert decision.spends is not patient
            assert patient or attempt < policy.attempts
            assert AT + age + decision.delay * 1000 <= AT + policy.max_age.ms
            assert 0 <= decision.delay <= policy.cap + (cap if kind is OutcomeKind.THROTTLED else 0)
            if kind is OutcomeKind.THROTTLED and asked is not None:
                assert decision.delay >= min(cap, max(1.0, asked))
        case Dead():
            assert decision.reason in {*RETRIED.values(), *AT_ONCE.values(), Reason.MAX_AGE}
        case _:
            assert_never(decision)


@given(draws=st.lists(st.floats(0, 1, exclude_max=True), min_size=1))
def test_a_delivery_that_only_fails_ends(draws: list[float]) -> None:
    """Whatever is drawn: as many attempts as the policy has, at most, and a dead letter."""
    now, attempt, drawn = AT, 1, iter(draws * 10)
    while isinstance(
        decision := decide(
            Outcome(OutcomeKind.FAILED), attempt, AT, now, PRESETS["page"], 3600.0, lambda: next(drawn)
        ),
        Later,
    ):
        now += round(decision.delay * 1000)
        attempt += 1
    assert isinstance(decision, Dead)
    assert attempt <= PRESETS["page"].attempts


@pytest.mark.parametrize("kind", OutcomeKind)
def test_only_what_is_refused_for_good_splits_a_batch(kind: OutcomeKind) -> None:
    alone = Later(0, spends=False, status=400, error="no", alone=True)
    assert split(Outcome(kind, 400, "no")) == (alone if kind in AT_ONCE else None)

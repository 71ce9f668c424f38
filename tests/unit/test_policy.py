"""Retry policies: presets, what differs from them, and the schedules in the comment of policy.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.outcomes import Dead, Later, Outcome, OutcomeKind
from common.policy import PRESETS, Policy, record_ttl, retry_policy
from common.settings import Destination, Retry
from common.units import Duration
from dispatcher.decide import decide

HOUR = 3600


def destination(**retry: object) -> Destination:
    return Destination(name="a", type="stdout", retry=Retry(**retry))  # type: ignore[arg-type]  # names from a test


def test_presets_are_those_of_the_design() -> None:
    page = retry_policy(destination(preset="page"))
    assert page == Policy(attempts=8, base=1.0, cap=300.0, max_age=Duration(HOUR))
    webhook = retry_policy(destination())
    assert (webhook.attempts, webhook.max_age) == (10, Duration(76 * HOUR))


def test_what_is_given_wins_over_the_preset() -> None:
    policy = retry_policy(destination(preset="page", attempts=3, cap=Duration(60)))
    assert policy == Policy(attempts=3, base=1.0, cap=60.0, max_age=Duration(HOUR))


def test_each_field_alone_can_be_given() -> None:
    given = {"attempts": 1, "base": Duration(0.01), "cap": Duration(7200), "max_age": Duration(5)}
    for name, value in given.items():
        assert getattr(retry_policy(destination(preset="page", **{name: value})), name) == value


def test_the_webhook_schedule_covers_the_horizon() -> None:
    webhook = PRESETS["webhook"]
    times = [round(at / HOUR, 2) for at in webhook.expected()]
    assert times == [0, 0, 0.04, 0.29, 1.29, 3.79, 8.79, 15.79, 25.79, 37.79]
    longest = sum(webhook.ceiling(attempt) for attempt in range(1, webhook.attempts))
    assert longest == 75 * HOUR + 35 * 60 + 5
    assert longest < webhook.max_age


def test_a_base_of_ones_own_replaces_the_schedule() -> None:
    policy = retry_policy(destination(base=Duration(0.5)))
    assert [policy.ceiling(attempt) for attempt in (1, 2, 3)] == [0.5, 1.0, 2.0]
    assert retry_policy(destination(cap=Duration(60))).ceiling(3) == 60


def test_the_page_schedule() -> None:
    assert PRESETS["page"].expected() == [0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 63.5]


@pytest.mark.parametrize(("attempt", "ceiling"), [(1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (5000, 300)])
def test_ceiling(attempt: int, ceiling: float) -> None:
    assert PRESETS["page"].ceiling(attempt) == ceiling


def test_the_timeline_of_a_page() -> None:
    slots = PRESETS["page"].timeline(10.0)
    assert [slot.attempt for slot in slots] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [slot.wait for slot in slots] == [0, 1, 2, 4, 8, 16, 32, 64]
    assert {slot.earliest for slot in slots} == {0}
    assert [slot.expected for slot in slots] == PRESETS["page"].expected()
    assert [slot.latest for slot in slots] == [0, 11, 23, 37, 55, 81, 123, 197]
    assert all(slot.within and not slot.capped for slot in slots)


def test_cap_and_max_age_show_in_the_timeline() -> None:
    policy = Policy(attempts=6, base=10.0, cap=25.0, max_age=Duration(60))
    told = [(slot.wait, slot.capped, slot.expected, slot.latest, slot.within) for slot in policy.timeline()]
    assert told == [
        (0, False, 0, 0, True),
        (10, False, 5, 10, True),
        (20, False, 15, 30, True),
        (25, True, 27.5, 55, True),
        (25, True, 40, 60, False),
        (25, True, 52.5, 60, False),
    ]


@given(
    policy=st.builds(
        Policy,
        attempts=st.integers(1, 30),
        base=st.floats(0.001, 100),
        cap=st.floats(0.001, 1000),
        max_age=st.floats(1, 10_000).map(Duration),
        schedule=st.sampled_from([(), (5.0, 300.0, 1800.0)]),
    ),
    waits=st.lists(st.floats(0, 1, exclude_max=True), min_size=30, max_size=30),
    takes=st.floats(0, 10),
)
def test_no_delivery_leaves_its_timeline(policy: Policy, waits: list[float], takes: float) -> None:
    at, attempt, failed = 0.0, 1, Outcome(OutcomeKind.FAILED)
    for slot in policy.timeline(10.0):
        assert slot.attempt == attempt
        assert slot.earliest <= at <= slot.latest + 0.01  # decide counts whole milliseconds
        now = round((at + takes) * 1000)
        decision = decide(failed, attempt, 0, now, policy, 0.0, iter([waits[attempt - 1]]).__next__)
        if isinstance(decision, Dead):
            assert attempt == policy.attempts or not policy.timeline(10.0)[attempt].within
            return
        assert isinstance(decision, Later)
        at, attempt = at + takes + decision.delay, attempt + 1
    raise AssertionError("it was never given up")


def test_a_record_outlives_the_delivery_by_remember() -> None:
    ttl = record_ttl(PRESETS["page"], Duration(86400))
    assert ttl == Duration(25 * HOUR)
    assert ttl.ms == 90_000_000

"""What a batch says about its destination, and how fast a ramp may be."""

from __future__ import annotations

import itertools
from bisect import bisect_left

import pytest
from msgspec.structs import replace

from common.outcomes import Dead, Delivered, Duplicate, Later, OutcomeKind, Reason, Settlement
from common.settings import Breaker
from dispatcher.entry import Entry
from dispatcher.gate import News, Probe, news
from dispatcher.settling import Attempt, Settling
from tests.support.deliveries import delivery
from tests.support.ramp import RAMP

FAILURES = (
    OutcomeKind.FAILED,
    OutcomeKind.TIMEOUT,
    OutcomeKind.CONNECTION,
    OutcomeKind.REFUSED,
    OutcomeKind.THROTTLED,
)


def attempt(kind: OutcomeKind, key: str = "k", *, probe: bool = False, closes: float = 0.0) -> Settling:
    decision: Settlement = Later(1, spends=True, error=f"{kind} {key}")
    if kind is OutcomeKind.DELIVERED:
        decision = Delivered(200)
    return Settling(Entry("1-1", {}), delivery(key), decision, True, Attempt(kind, 0.1, 0, closes), probe)


def together(kind: OutcomeKind) -> list[Settling]:
    """Three deliveries of one request."""
    told = Settling(Entry("1-1", {}), delivery("0"), Later(1, spends=True), True, Attempt(kind, 0.1))
    others = [
        replace(told, delivery=delivery(key), attempt=Attempt(kind, 0.1, shared=True)) for key in ("1", "2")
    ]
    return [told, *others]


def test_a_batch_is_one_failure() -> None:
    assert news(together(OutcomeKind.FAILED)).failures == 1
    assert news(together(OutcomeKind.GONE)).gone == ("0",)


def nothing_tried(settlement: Settlement, *, probe: bool = False) -> Settling:
    return Settling(Entry("1-1", {}), delivery("k"), settlement, True, None, probe)


def test_nothing_but_successes_is_no_news() -> None:
    told = news([attempt(OutcomeKind.DELIVERED)] * 3)
    assert told == News()
    assert told.words(Breaker()) == []


@pytest.mark.parametrize("kind", FAILURES)
def test_failures_since_the_last_success_count(kind: OutcomeKind) -> None:
    batch = [attempt(kind), attempt(OutcomeKind.DELIVERED), attempt(kind, "a"), attempt(kind, "b")]
    assert news(batch) == News(failures=2, failed=f"{kind} b")
    assert news(batch[:2]).failures == 0


@pytest.mark.parametrize("kind", [OutcomeKind.REJECTED, OutcomeKind.RENDER, OutcomeKind.GONE])
def test_what_says_nothing_of_failures(kind: OutcomeKind) -> None:
    batch = [attempt(OutcomeKind.FAILED), attempt(kind), attempt(OutcomeKind.FAILED)]
    assert news(batch).failures == 2


def test_settlements_without_an_attempt_say_nothing() -> None:
    batch = [nothing_tried(each) for each in (Duplicate(), Later(0, spends=False), Dead(Reason.MAX_AGE))]
    assert news(batch).words(Breaker()) == []


def test_different_keys_that_met_gate_on_are_told_up_to_three() -> None:
    batch = [attempt(OutcomeKind.GONE, key) for key in "aabacdb"]
    assert news(batch) == News(gone=("a", "b", "c"), said_gone="gone b")
    batch.insert(6, attempt(OutcomeKind.DELIVERED))
    assert news(batch).gone == ("b",)


def test_the_longest_retry_after_counts_and_is_no_failure() -> None:
    batch = [attempt(OutcomeKind.THROTTLED, closes=closes) for closes in (2.0, 5.0, 3.0)]
    assert news([*batch, attempt(OutcomeKind.DELIVERED)]).throttled == 5.0
    assert news(batch).failures == 0


@pytest.mark.parametrize(
    ("kind", "result"),
    [
        (OutcomeKind.DELIVERED, Probe.OK),
        (OutcomeKind.REJECTED, Probe.OK),
        (OutcomeKind.GONE, Probe.OK),
        (OutcomeKind.RENDER, Probe.BACK),
        *((kind, Probe.FAILED) for kind in FAILURES),
    ],
)
def test_the_probe_tells_whether_the_destination_is_there(kind: OutcomeKind, result: Probe) -> None:
    assert news([attempt(OutcomeKind.DELIVERED), attempt(kind, probe=True)]).probe is result


def test_a_probe_that_is_told_when_to_come_back_closes_the_gate_for_so_long() -> None:
    told = news([attempt(OutcomeKind.THROTTLED, probe=True, closes=7.0)])
    assert (told.probe, told.throttled) == (Probe.THROTTLED, 7.0)


@pytest.mark.parametrize("settlement", [Duplicate(), Later(0, spends=False), Dead(Reason.MAX_AGE)])
def test_a_probe_without_an_attempt_is_given_back(settlement: Settlement) -> None:
    assert news([nothing_tried(settlement, probe=True)]).probe is Probe.BACK


# The ramp


def test_no_second_of_a_ramp_holds_more_than_twice_the_one_before() -> None:
    """Wherever the seconds begin, the first being that of the probe."""
    times = [0.0, *(second + n / many for second, many in enumerate(RAMP[:16]) for n in range(1, many + 1))]
    for tick in range(1, 3000):
        begins = tick * 0.005 + 0.0005
        before = bisect_left(times, begins) - (bisect_left(times, begins - 1) if begins > 1 else 0)
        after = bisect_left(times, begins + 1) - bisect_left(times, begins)
        assert after <= 2 * before, begins


def test_a_ramp_rises_steadily_to_what_holds_nothing_back() -> None:
    assert all(later <= 1.6 * earlier for earlier, later in itertools.pairwise(RAMP[1:]))
    assert RAMP[-1] * 1.5 > 10_000

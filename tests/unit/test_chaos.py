"""The judge of `make chaos` finds what must not be, and explains no more than it may."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from benchmarks.flaky import CLOSED, LATE, MIX, OK, Flaky
from benchmarks.proof import Result, faults, table
from benchmarks.verdict import RECOVERY, SETTLING, Answer, Cause, Events, cause, duplicates, lost
from common.snapshot import Ledger, Snapshot

FIRST = Answer(key="k", worker="a", attempt=1, status=200, came=100.0, done=100.1, arrived=True)
SECOND = replace(FIRST, worker="b", came=110.0, done=110.1)
QUIET = Events(timeout=1.0, killed={}, outages=())


@pytest.mark.parametrize(
    ("first", "events", "why"),
    [
        ({}, {}, Cause.UNEXPLAINED),
        ({"arrived": False}, {}, Cause.UNHEARD),
        ({"done": 101.0}, {}, Cause.UNHEARD),
        ({"arrived": False}, {"killed": {"a": 100.05}}, Cause.KILLED),
        ({"arrived": False}, {"killed": {"a": 100.2}}, Cause.UNHEARD),
        ({}, {"unanswered": frozenset({("a", "k", 1)})}, Cause.BROKEN),
        ({}, {"unanswered": frozenset({("a", "k", 2), ("b", "k", 1)})}, Cause.UNEXPLAINED),
        ({}, {"killed": {"a": 99.9}}, Cause.KILLED),
        ({}, {"killed": {"a": 100.1 + SETTLING}}, Cause.KILLED),
        ({}, {"killed": {"a": 100.2 + SETTLING}}, Cause.UNEXPLAINED),
        ({}, {"killed": {"b": 100.2}}, Cause.UNEXPLAINED),
        ({}, {"outages": [(100.1 + SETTLING, 108.0)]}, Cause.OUTAGE),
        ({}, {"outages": [(100.2 + SETTLING, 108.0)]}, Cause.UNEXPLAINED),
        ({}, {"outages": [(90.0, 100.0 - RECOVERY)]}, Cause.OUTAGE),
        ({}, {"outages": [(90.0, 99.9 - RECOVERY)]}, Cause.UNEXPLAINED),
    ],
)
def test_why_an_answer_did_not_end_its_delivery(
    first: dict[str, Any], events: dict[str, Any], why: Cause
) -> None:
    assert cause(replace(FIRST, **first), SECOND, replace(QUIET, **events)) is why


def test_an_outage_after_the_duplicate_explains_nothing() -> None:
    at_once = replace(SECOND, came=100.2, done=100.3)
    later = replace(QUIET, outages=[(100.4, 101.0)])
    assert cause(FIRST, at_once, later) is Cause.UNEXPLAINED


def test_duplicates_are_the_2xx_answers_beyond_the_first_of_a_key() -> None:
    failed = replace(FIRST, status=503, came=99.0, done=99.1)
    other = replace(SECOND, key="other")
    found = duplicates([SECOND, other, FIRST, failed], QUIET)
    assert found == [(FIRST, SECOND, Cause.UNEXPLAINED)]


def test_lost_is_what_was_acknowledged_and_got_no_2xx() -> None:
    assert lost({"k", "failed", "never"}, [FIRST, replace(FIRST, key="failed", status=500)]) == [
        "failed",
        "never",
    ]


def end(**ledger: int) -> Snapshot:
    return Snapshot(
        destination="hook",
        now=0,
        waiting=0,
        retrying=0,
        dead_letters=0,
        in_flight=0,
        consumers=3,
        groups=1,
        oldest_at=None,
        next_due=None,
        gate={},
        ledger=Ledger(**{"accepted": 3, "delivered": 3, **ledger}),
    )


FINE = Result(
    alerts=3,
    acknowledged=3,
    repeats=0,
    met=Counter({"503": 2, "ServerDisconnectedError": 1}),
    requests=4,
    delivered=3,
    lost=[],
    dead=Counter(),
    duplicates=[(FIRST, SECOND, Cause.KILLED)],
    kills=1,
    restarts=1,
    looks=9,
    ledgers={"at the end": end()},
    wrong=[],
    seconds=1.0,
)


def test_a_run_in_which_everything_is_well_has_no_fault() -> None:
    assert faults(FINE) == []
    assert table(FINE).row_count > 15


@pytest.mark.parametrize(
    ("off", "said"),
    [
        ({"lost": ["k"]}, "1 acknowledged alerts never got a 2xx: k"),
        ({"acknowledged": 2}, "1 alerts were not acknowledged"),
        ({"duplicates": [(FIRST, SECOND, Cause.UNEXPLAINED)]}, "unexplained duplicate of k"),
        ({"wrong": ["a sentence"]}, "a sentence"),
        ({"ledgers": {"at the end": end(delivered=2)}}, "1 unaccounted"),
        ({"ledgers": {"at the end": end(delivered=2, lost=1)}}, "1 lost"),
        ({"ledgers": {"at the end": end(accepted=4, delivered=4)}}, "accepted 4 deliveries of 3"),
        ({"ledgers": {"at the end": replace(end(delivered=2), retrying=1)}}, "1 deliveries are still"),
        ({"ledgers": {"at the end": replace(end(delivered=2, died=1), dead_letters=1)}}, "1 dead letters"),
        ({"restarts": 0}, "the server was not restarted"),
        ({"kills": 0}, "no dispatcher was killed"),
    ],
)
def test_whatever_is_off_is_said(off: dict[str, Any], said: str) -> None:
    [fault] = faults(replace(FINE, **off))
    assert said in fault


async def test_the_receiver_fails_a_fifth_and_the_same_with_the_same_seed() -> None:
    names = [f"host-{n}" for n in range(3000)]
    one, again, other = Flaky(1, 1.0), Flaky(1, 1.0), Flaky(2, 1.0)
    chosen = [one.choose(name) for name in names]
    assert chosen == [again.choose(name) for name in reversed(names)][::-1]
    assert chosen != [other.choose(name) for name in names]
    counted = Counter(kind for kind, _ in chosen)
    assert counted.keys() == {500, 503, CLOSED, LATE, OK}
    assert 0.17 < 1 - counted[OK] / 3000 < 0.23
    assert all((delay > 1.0) == (kind == LATE) for kind, delay in chosen)
    assert sum(share for _, share in MIX) == pytest.approx(1)

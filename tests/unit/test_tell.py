"""One line per attempt that says everything, and as many as there were attempts, written or counted."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from common.outcomes import Dead, Decision, Delivered, Later, Outcome, OutcomeKind, Reason
from common.storm import BURST, Storms
from dispatcher import tell
from dispatcher.entry import Entry
from tests.support.deliveries import AT, delivery

RATE = 1.0
DELIVERED = Outcome(OutcomeKind.DELIVERED, 204)
TIMEOUT = Outcome(OutcomeKind.TIMEOUT, error="no answer within 10s")
COMMON = {
    "destination": "pager",
    "key": "k",
    "incident": "db1:disk",
    "attempt": 2,
    "consumer": "me",
    "members": None,
}


@pytest.fixture
def storms(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Storms:
    """Those of this test alone, at a clock that stands still."""
    caplog.set_level(logging.INFO)
    made = Storms(RATE, lambda: 0.0)
    monkeypatch.setattr(tell, "storms", made)
    return made


def told(caplog: pytest.LogCaptureFixture, event: str = "attempt") -> list[dict[str, Any]]:
    return [vars(record)["fields"] for record in caplog.records if record.message == event]


@pytest.mark.parametrize(
    ("outcome", "decision", "fields"),
    [
        (
            DELIVERED,
            Delivered(204),
            {"status": 204, "error": None, "decision": "delivered", "end_to_end": 1.5},
        ),
        (
            TIMEOUT,
            Later(3.14159, spends=True),
            {"status": None, "error": TIMEOUT.error, "decision": "later", "delay": 3.142, "spends": True},
        ),
        (
            Outcome(OutcomeKind.REJECTED, 400, "HTTP 400"),
            Dead(Reason.REJECTED, 400, "HTTP 400"),
            {"status": 400, "error": "HTTP 400", "decision": "dead", "reason": "rejected"},
        ),
    ],
)
@pytest.mark.usefixtures("storms")
def test_a_line_says_everything(
    caplog: pytest.LogCaptureFixture, outcome: Outcome, decision: Decision, fields: dict[str, Any]
) -> None:
    tell.Teller("pager", "me").attempt(delivery("k", 2), outcome, decision, 0.1234567, AT + 1500)
    assert told(caplog) == [{**COMMON, "outcome": outcome.kind, "seconds": 0.123457, **fields}]
    [record] = caplog.records
    assert record.levelno == (logging.INFO if outcome is DELIVERED else logging.WARNING)


def test_a_storm_of_successes_costs_no_failure_its_line(
    caplog: pytest.LogCaptureFixture, storms: Storms
) -> None:
    teller = tell.Teller("pager", "me")
    for number in range(20_000):
        teller.attempt(delivery(), DELIVERED, Delivered(204), 0.0, AT)
        if number in (10_000, 15_000):
            teller.attempt(delivery(), TIMEOUT, Later(1.0, spends=True), 0.0, AT)
    storms.tell()
    lines = told(caplog)
    assert [line["outcome"] for line in lines].count(OutcomeKind.TIMEOUT) == 2
    [left_out] = told(caplog, "lines_left_out")
    assert left_out == {
        "of": "attempt",
        "destination": "pager",
        "outcome": "delivered",
        "count": 20_000 - BURST,
    }
    assert len(lines) + left_out["count"] == 20_002


def test_each_member_of_a_batch_has_its_line(caplog: pytest.LogCaptureFixture, storms: Storms) -> None:
    teller = tell.Teller("pager", "me")
    for key in "ab":
        teller.attempt(delivery(key), DELIVERED, Delivered(200), 0.0, AT, members=2)
    storms.tell()
    assert [(line["key"], line["members"]) for line in told(caplog)] == [("a", 2), ("b", 2)]


@pytest.mark.usefixtures("storms")
def test_what_dies_without_an_attempt(caplog: pytest.LogCaptureFixture) -> None:
    entry = Entry("1-1", {b"key": b"k\xff"})
    tell.Teller("pager", "me").died(entry, None, Dead(Reason.MALFORMED, error="no JSON"))
    line = {"key": "k\ufffd", "entry": "1-1", "reason": "malformed", "status": None, "error": "no JSON"}
    assert told(caplog, "dead") == [{"destination": "pager", "consumer": "me", **line}]


def test_a_bug_that_comes_in_storms(caplog: pytest.LogCaptureFixture, storms: Storms) -> None:
    teller = tell.Teller("pager", "me")
    for _ in range(100):
        teller.broke(delivery(), RuntimeError("bug"))
    storms.tell()
    assert len(told(caplog, "attempt_broke")) == BURST
    assert told(caplog, "lines_left_out")[0]["count"] == 100 - BURST

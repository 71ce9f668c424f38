"""Of a storm of like lines some get through, and how many did not is told."""

from __future__ import annotations

import pytest

from common.storm import BURST, ERROR, INFO, WARNING, Storms


class Clock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    """The fields of what was told."""
    assert {record.message for record in caplog.records} <= {"lines_left_out"}
    told = [vars(record)["fields"] for record in caplog.records]
    caplog.clear()
    return told


def test_a_burst_then_a_rate(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    storms = Storms(2.0, clock)
    kind = storms.kind("attempt", WARNING, destination="pager")
    assert sum(kind.admits() for _ in range(1000)) == 2 * BURST
    storms.tell()
    assert lines(caplog) == [{"of": "attempt", "destination": "pager", "count": 980}]
    clock.now += 1.5
    assert sum(kind.admits() for _ in range(1000)) == 3
    storms.tell()
    assert [told["count"] for told in lines(caplog)] == [997]
    clock.now += 1e9
    assert sum(kind.admits() for _ in range(1000)) == 2 * BURST
    storms.tell()
    caplog.clear()
    storms.tell()
    assert lines(caplog) == []


def test_kinds_do_not_cost_each_other_anything() -> None:
    storms = Storms(1.0, Clock())
    storm = storms.kind("attempt", WARNING, outcome="timeout")
    assert sum(storm.admits() for _ in range(1000)) == BURST
    assert storms.kind("attempt", WARNING, outcome="gone").admits()
    assert storms.kind("attempt", WARNING, outcome="timeout") is storm


def test_none_at_all(caplog: pytest.LogCaptureFixture) -> None:
    storms = Storms(0.0, Clock())
    kind = storms.kind("refused", ERROR, code=503)
    assert not any(kind.admits() for _ in range(3))
    storms.tell()
    assert lines(caplog) == [{"of": "refused", "code": 503, "count": 3}]


def test_less_than_one_a_second_is_one_at_first() -> None:
    clock = Clock()
    kind = Storms(0.01, clock).kind("attempt", INFO)
    assert [kind.admits(), kind.admits()] == [True, False]
    clock.now += 100.0
    assert kind.admits()

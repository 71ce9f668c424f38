"""What keeping alive tells of entries that are no longer pending here."""

from __future__ import annotations

import asyncio

import pytest

from common import connect, settings
from common.outcomes import Duplicate
from dispatcher import tend
from dispatcher.entry import Entry
from dispatcher.lane import Lane
from dispatcher.metrics import Metrics
from dispatcher.quarantine import Quarantine
from dispatcher.replica import Clock, Pulse, Replica
from dispatcher.settling import Settling
from tests.support.deliveries import webhook


async def test_what_is_being_settled_was_not_taken_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its settlement may be done while the answer is still on the way, on another connection."""
    entries = [Entry("1-1", {}), Entry("2-1", {}), Entry("3-1", {})]

    async def keep_alive(*_: object) -> tuple[list[str], list[str]]:
        return [entry.id for entry in entries], []

    monkeypatch.setattr(tend, "keep_alive", keep_alive)
    async with asyncio.TaskGroup() as tasks:
        lane = Lane(replica(tasks), webhook())
    lane.in_work = {entry.id: entry for entry in entries}
    lane.settler.under_way = [Settling(entries[0], None, Duplicate(), claimed=False)]
    await tend.Tender(lane)._keep_alive()
    [told] = caplog.records
    assert told.message == "entries_taken_over"
    assert vars(told)["fields"] == {"destination": "pager", "count": 2, "first": "2-1"}


def replica(tasks: asyncio.TaskGroup) -> Replica:
    section, metrics = settings.Redis(), Metrics()  # nobody connects
    metrics.add("pager")
    return Replica(
        redis=connect.client(section),
        bell=connect.client(section),
        consumer="me",
        settings=settings.Settings(destinations=[webhook()]),
        metrics=metrics,
        quarantine=Quarantine(),
        clock=Clock(),
        pulse=Pulse(60),
        stopping=asyncio.Event(),
        tasks=tasks,
    )

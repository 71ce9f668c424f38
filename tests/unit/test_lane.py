"""What a lane tells the claim of entries that it has just read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis import exceptions as errors

from dispatcher import lane as module
from dispatcher.claim import JustRead, Verdict
from dispatcher.entry import Entry
from dispatcher.lane import Lane
from dispatcher.take import Taken
from tests.support.deliveries import webhook
from tests.unit.test_tend import replica

ALERT = b'{"incident":"h:n","host":"h","name":"n","timestamp":1}'
FIELDS = {b"key": b"k", b"alert": ALERT, b"attempt": b"0", b"first_at": b"1"}


class Told:
    """Stands for Redis: gives one entry, answers claims with `answers`, and keeps what they were told."""

    def __init__(self, now: int, answers: list[Verdict | Exception]) -> None:
        self.just_read: list[JustRead | None] = []
        self._now = now
        self._answers = answers

    async def take(self, *_: object, **__: object) -> Taken:
        return Taken(
            gate="",
            reason="",
            until=0,
            ramp=False,
            now=self._now,
            next_due=-1,
            last="0-0",
            wait=-1,
            probe=False,
            entries=[Entry("1-1", FIELDS)],
        )

    async def claim(self, *told: Any) -> list[Verdict]:
        *_, deliveries, just_read = told
        self.just_read.append(just_read)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [answer] * len(deliveries)


async def run(monkeypatch: pytest.MonkeyPatch, told: Told, *, ahead: int) -> None:
    monkeypatch.setattr(module, "take", told.take)
    monkeypatch.setattr(module, "claim", told.claim)
    async with asyncio.TaskGroup() as tasks:
        lane = Lane(replica(tasks), webhook())
        monkeypatch.setattr(lane.replica.clock, "now", lambda: 50_000 + ahead)
        monkeypatch.setattr(lane.trouble, "wait_out", lambda _: asyncio.sleep(0))
        await lane._take(64)


@pytest.mark.parametrize(
    ("ahead", "until"), [(-300, 50_700), (700, 51_000)], ids=["slow take", "clock ahead"]
)
async def test_a_second_from_before_the_take(monkeypatch: pytest.MonkeyPatch, ahead: int, until: int) -> None:
    told = Told(50_000, [Verdict.NOT_MINE])
    await run(monkeypatch, told, ahead=ahead)
    assert told.just_read == [JustRead(until, 0)]


async def test_after_an_error_the_group_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(50_000, [errors.ConnectionError("gone"), Verdict.NOT_MINE])
    await run(monkeypatch, told, ahead=0)
    assert told.just_read == [JustRead(51_000, 0), None]

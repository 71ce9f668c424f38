"""Removes the objects of deliveries that have ended: after settle, beside the way.

Takes settlements that Redis has answered, and does not wait. What can't be removed is left to the sweeper
(`sweep.py`), since settle has taken it from the list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from common.log import Log
from common.objects import Objects
from common.stored import Away
from dispatcher.replica import Replica
from dispatcher.settle import Settled, ends
from dispatcher.settling import Settling

log = Log("dispatcher")

GOODBYE = 2.0  # seconds that the end of a lane waits for what is under way


class Eraser:
    """One lane's."""

    def __init__(self, replica: Replica, name: str) -> None:
        settings = replica.settings
        self._objects = Objects(settings.objects.url, settings.redis.namespace)
        self._replica = replica
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()

    def ended(self, batch: Sequence[Settling], answers: Sequence[Settled]) -> None:
        """Begin to remove what these have no need of any more."""
        if not any(b"object" in item.entry.fields for item in batch):
            return  # the usual case, in half the time
        names = [
            name
            for item, answer in zip(batch, answers, strict=True)
            if (name := item.entry.object) is not None and answer is Settled.DONE and ends(item.settlement)
        ]
        if names:
            task = self._replica.tasks.create_task(self._erase(names))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait a moment for what is under way."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GOODBYE)
        for task in self._tasks:
            task.cancel()

    async def _erase(self, names: list[str]) -> None:
        try:
            await self._objects.delete(self._name, names)
        except Away as fault:
            log.info("objects_left", destination=self._name, count=len(names), error=fault)

"""Passes on what a destination made of an alert, to those after it: between deliver and settle.

Takes an alert; returns once Redis has it for each of them, and so before the original is settled: a crash in
between repeats the attempt, and finds the key taken. Whatever Redis and the object store do is waited out;
`tend` keeps the original alive meanwhile.
"""

from __future__ import annotations

import asyncio
import random

from redis import exceptions as errors

from common.alert import Alert
from common.append import NO_ROOM, Store
from common.log import Log
from common.settings import Destination
from common.stored import Away
from common.wire import Wire
from dispatcher.replica import Replica
from dispatcher.trouble import Trouble

AWAY = 5.0  # seconds between two tries when the object store is away, about

log = Log("dispatcher")


class FollowUp:
    """One destination's. Has nothing to do for most of them."""

    def __init__(self, replica: Replica, destination: Destination, trouble: Trouble) -> None:
        self._name = destination.name
        self._places = {name: [0] for name in destination.follow_ups}
        self._wire = Wire(replica.bell)  # which has the patience for a wait for replicas or the disk
        self._store = Store(self._wire, replica.settings, cluster=True)
        self._trouble = trouble

    async def append(self, alert: Alert, trace: str | None) -> list[str]:
        """The names of those that had no room for it, neither in the queue nor among the dead letters."""
        while True:
            try:
                (codes,) = await self._store.append([alert], self._places, [trace])
            except errors.RedisError as fault:
                await self._trouble.wait_out(fault, patient=True)
            except Away as fault:
                log.warning("objects_away", destination=self._name, error=fault)
                await asyncio.sleep(AWAY * (0.5 + random.random()))  # noqa: S311 - jitter, no secret
            else:
                return [name for name, code in codes.items() if code == NO_ROOM]

    async def close(self) -> None:
        """Give the connection back."""
        await self._wire.close()

"""Requests that carry several deliveries: between claim and deliver, where a destination takes batches.

Takes claimed deliveries; gathers them (`gather.py`), and hands each group to the deliverer when the fleet's
rate allows one more request and not more than `max_in_flight` are under way here. What was not sent when the
lane ends, or the gate closes, goes back to the fleet unspent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from redis import exceptions as errors

from common import keys, settings
from common.outcomes import Later
from common.scripts import Script
from common.wire import Wire
from dispatcher.deliver import Deliverer
from dispatcher.gather import Gatherer, Member
from dispatcher.replica import Replica
from dispatcher.settling import Settling
from dispatcher.trouble import Trouble

MOST = 2000  # deliveries in all the batches of one replica
_reserve = Script("dispatcher", "reserve")


def slots(destination: settings.Destination) -> int:
    """How many deliveries of a destination may be in work in one replica."""
    if destination.batch is None:
        return destination.max_in_flight
    return min(MOST, destination.max_in_flight * destination.batch.max)


class Batches:
    """One per lane whose destination has `batch`; `post` is given what goes back."""

    def __init__(
        self,
        replica: Replica,
        keys: keys.Destination,
        destination: settings.Destination,
        batch: settings.Batch,
        deliverer: Deliverer,
        trouble: Trouble,
        post: Callable[[Settling], None],
    ) -> None:
        self._replica = replica
        self._keys = keys
        self._rate = destination.rate
        self._deliverer = deliverer
        self._trouble = trouble
        self._post = post
        self._gatherer = Gatherer(batch, self._send)
        self._free = asyncio.Semaphore(destination.max_in_flight)
        self._wire = Wire(replica.redis)

    def deliver(self, member: Member, *, at_once: bool) -> None:
        """Put it into a batch; `at_once` and one that is to go alone become requests of their own."""
        entry, delivery = member
        if at_once:
            self._deliverer.deliver(entry, delivery)
        elif entry.alone:
            self._send([member])
        else:
            self._gatherer.add(entry, delivery)

    def end(self) -> None:
        """Wait for no more: what is held is sent now, or goes back when the lane is to stop."""
        if self._replica.stopping.is_set():
            self._hand_back(self._gatherer.take_back())
        else:
            self._gatherer.flush()

    async def close(self) -> None:
        """Give the connection back."""
        await self._wire.close()

    def _send(self, members: list[Member]) -> None:
        self._replica.tasks.create_task(self._request(members))

    async def _request(self, members: list[Member]) -> None:
        async with self._free:
            if not await self._may():
                self._hand_back(members)
            else:
                members.sort(key=lambda member: member[1].alert.timestamp)
                await self._deliverer.attempt(members)

    async def _may(self) -> bool:
        """Wait for the fleet's rate; false when the gate is closed then, or the lane is to stop."""
        wait = await self._ask("" if self._rate is None else repr(float(self._rate)))
        while wait > 0:
            await self._replica.pause(wait / 1000)
            wait = await self._ask("")  # it may have closed meanwhile
        return wait == 0 and not self._replica.stopping.is_set()

    async def _ask(self, rate: str) -> int:
        """Ms to wait before a request; -1 when there is to be none: the gate is closed, or the lane stops."""
        while not self._replica.stopping.is_set():
            try:
                gate, wait = await _reserve(self._wire, [self._keys.gate, self._keys.rate], [rate])
            except errors.RedisError as fault:
                await self._trouble.wait_out(fault)
            else:
                return -1 if gate else int(wait)
        return -1

    def _hand_back(self, members: Iterable[Member]) -> None:
        for entry, delivery in members:
            self._post(Settling(entry, delivery, Later(0, spends=False), claimed=True))

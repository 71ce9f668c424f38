"""A lane's decisions on their way to Redis: what is posted is carried out, batch by batch.

Takes settlements, one by one and without waiting; tells the lane which of them are through. Whatever Redis
does is waited out: what is in hand stays in hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from redis import exceptions as errors

from common.keys import Destination
from common.wire import Wire
from dispatcher.erase import Eraser
from dispatcher.metrics import Lane as Metrics
from dispatcher.replica import Replica
from dispatcher.settle import Caps, Settled, settle
from dispatcher.settling import Settling
from dispatcher.trouble import Trouble

BATCH = 512  # settlements in one call


class Settler:
    """One per lane. `ended` is called with each batch that Redis has answered."""

    def __init__(
        self,
        replica: Replica,
        keys: Destination,
        caps: Caps,
        metrics: Metrics,
        trouble: Trouble,
        eraser: Eraser,
        ended: Callable[[Sequence[Settling]], None],
    ) -> None:
        self.under_way: list[Settling] = []  # sent to Redis, not answered yet
        self._replica = replica
        self._keys = keys
        self._caps = caps
        self._metrics = metrics
        self._trouble = trouble
        self._eraser = eraser
        self._ended = ended
        self._outbox: list[Settling] = []
        self._posted = asyncio.Event()
        self._wire = Wire(replica.redis)
        self._lease_back = False

    def post(self, settling: Settling) -> None:
        """Put it into the next batch."""
        self._outbox.append(settling)
        self._posted.set()

    def give_back(self) -> None:
        """The probe was not made and there is nothing to settle: others may make it."""
        self._lease_back = True
        self._posted.set()

    async def run(self) -> None:
        """Carry out what was posted, in batches that form by themselves; until cancelled."""
        while True:
            await self._posted.wait()
            self._posted.clear()
            while self._outbox or self._lease_back:
                self.under_way = batch = self._next()
                answers = await self._settle(batch)
                self._metrics.settled(batch, answers, self._replica.clock.now())
                self._eraser.ended(batch, answers)
                self._ended(batch)
                self.under_way = []

    async def close(self) -> None:
        """Give the connection back."""
        await self._wire.close()

    def _next(self) -> list[Settling]:
        """What goes next; settlements of one request go together."""
        end = BATCH
        while end < len(self._outbox) and _shared(self._outbox[end]):
            end += 1
        batch = self._outbox[:end]
        del self._outbox[:end]
        return batch

    async def _settle(self, batch: list[Settling]) -> list[Settled]:
        lease_back, self._lease_back = self._lease_back, False
        while True:
            try:
                return await settle(
                    self._wire, self._keys, self._replica.consumer, self._caps, batch, lease_back=lease_back
                )
            except errors.RedisError as fault:
                await self._trouble.wait_out(fault, patient=True)


def _shared(item: Settling) -> bool:
    return item.attempt is not None and item.attempt.shared

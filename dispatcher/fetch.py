"""Gets the alert that is in an object: between claim and deliver, for what was too large for Redis.

Takes a claimed delivery and does not wait for it; hands it on with its alert, or concludes it: a dead letter
when the object is gone or is another one, later and unspent when the store is away. The gate is not touched:
the destination has nothing to do with it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from time import monotonic

from msgspec.structs import replace

from common.alert import Malformed, TooNew, decode
from common.log import Log
from common.objects import Objects
from common.outcomes import Dead, Later, Reason, Settlement
from common.stored import Away, Broken
from dispatcher.destinations.base import Delivery
from dispatcher.entry import TOO_NEW, Entry
from dispatcher.replica import Replica

log = Log("dispatcher")

LONGEST = 30.0  # seconds that a delivery waits for a store that is away, with as much jitter
AT_ONCE = 16  # objects being read


class Fetcher:
    """One lane's. `go_on` is given a delivery with its alert, `conclude` what is to become of it instead."""

    def __init__(
        self,
        replica: Replica,
        name: str,
        go_on: Callable[[Entry, Delivery], None],
        conclude: Callable[[Entry, Delivery, Settlement], None],
        objects: Objects | None = None,
    ) -> None:
        settings = replica.settings
        self._objects = objects or Objects(settings.objects.url, settings.redis.namespace)
        self._replica = replica
        self._name = name
        self._go_on = go_on
        self._conclude = conclude
        self._free = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._streak = 0  # times in a row that the store was away
        self._asks_again = 0.0  # until then it is not asked

    def fetch(self, entry: Entry, delivery: Delivery, otherwise: Settlement | None = None) -> None:
        """Begin. `otherwise` is what becomes of it in any case: then only its alert is looked for."""
        task = self._replica.tasks.create_task(self._fetch(entry, delivery, otherwise))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Let go of what is under way; those entries stay pending for the others."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _fetch(self, entry: Entry, delivery: Delivery, otherwise: Settlement | None) -> None:
        async with self._free:
            told = await self._read(delivery)
        if isinstance(told, Delivery):
            delivery, settlement = told, otherwise
        else:
            settlement = otherwise or told
        if settlement is None and self._replica.stopping.is_set():
            settlement = Later(0, spends=False)
        if settlement is None:
            self._go_on(entry, delivery)
        else:
            self._conclude(entry, delivery, settlement)

    async def _read(self, delivery: Delivery) -> Delivery | Settlement:
        """The delivery with its alert, or what is to become of it."""
        reference = delivery.reference
        if reference is None:
            return delivery
        if monotonic() < self._asks_again:
            return self._later()
        try:
            stored = await self._objects.get(self._name, reference)
            self._streak, self._asks_again = 0, 0.0
            return replace(delivery, alert=decode(stored), reference=None)
        except Away as fault:
            return self._away(fault)
        except Broken as fault:
            return Dead(Reason.OBJECT, error=f"object {reference.object}: {fault}")
        except Malformed as fault:
            return Dead(Reason.MALFORMED, error=str(fault))
        except TooNew:
            return Later(TOO_NEW, spends=False)

    def _away(self, fault: Away) -> Later:
        if monotonic() >= self._asks_again:  # the first of those that were asking together
            self._streak += 1
            self._asks_again = monotonic() + min(LONGEST, 2.0 ** min(self._streak - 1, 10))
            log.warning("objects_away", destination=self._name, error=fault)
        return self._later()

    def _later(self) -> Later:
        wait = max(0.0, self._asks_again - monotonic()) * (1 + random.random())  # noqa: S311 - jitter, no secret
        return Later(wait, spends=False, error="the object store is away")

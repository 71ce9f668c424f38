"""Removes objects that nobody refers to: beside the way, one replica of the fleet at a time.

Such objects are left by a crash between writing an object and the append script, or between settling and
removing it. Only what is older than an hour and not in `objects` of its destination is removed: append lists
an object minutes after it was written at the latest, and never again later.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from msgspec import Struct
from redis import exceptions as errors

from common import keys
from common.log import Log
from common.objects import Objects
from common.scripts import Server
from common.stored import Away
from common.trouble import kind_of
from dispatcher.replica import Replica

log = Log("dispatcher")

OLD = 3_600_000  # ms
EVERY = 600.0  # seconds between two sweeps of the fleet


class Swept(Struct):
    """What came of one sweep; `young` ones were not looked up."""

    seen: int = 0
    young: int = 0
    removed: int = 0


async def sweep(redis: Server, objects: Objects, namespace: str, now: int) -> Swept:
    """One sweep of all destinations, those that left the configuration included; `now` in ms.

    Raises Away and what redis-py raises; what was removed by then is removed.
    """
    swept = Swept()
    async for page in objects.pages():
        by_name: dict[str, list[str]] = {}
        for destination, name, written_at in page:
            swept.seen += 1
            if now - written_at > OLD:
                by_name.setdefault(destination, []).append(name)
            else:
                swept.young += 1
        for destination, names in by_name.items():
            unused = await _unlisted(redis, keys.objects(namespace, destination), names)
            await objects.delete(destination, unused)
            swept.removed += len(unused)
    return swept


async def _unlisted(redis: Server, key: str, names: Sequence[str]) -> list[str]:
    listed = await redis.execute_command("SMISMEMBER", key, *names)
    return [name for name, there in zip(names, listed, strict=True) if not there]


class Sweeper:
    """Sweeps when it is this replica's turn."""

    def __init__(self, replica: Replica) -> None:
        settings = replica.settings
        self._replica = replica
        self._namespace = settings.redis.namespace
        self._objects = Objects(settings.objects.url, self._namespace)

    async def run(self) -> None:
        """Until the replica stops."""
        while not self._replica.stopping.is_set():
            await self._replica.pause(EVERY * (0.5 + random.random()))  # noqa: S311 - jitter
            if not self._replica.stopping.is_set():
                await self.turn()

    async def turn(self) -> Swept | None:
        """One sweep, unless another replica has had its turn; what fails is left for the next one."""
        try:
            if self._objects.untouched or not await self._may():
                return None
            swept = await sweep(
                self._replica.redis, self._objects, self._namespace, self._replica.clock.now()
            )
        except Away as fault:
            log.warning("objects_away", error=fault)
            return None
        except errors.RedisError as fault:
            self._replica.metrics.errors[kind_of(fault)].inc()
            return None
        if swept.removed:
            log.info("objects_swept", removed=swept.removed, seen=swept.seen, young=swept.young)
        return swept

    async def _may(self) -> bool:
        """One replica in `EVERY` seconds."""
        key, lease = keys.sweep(self._namespace), round(EVERY * 1000)
        return bool(
            await self._replica.redis.execute_command("SET", key, self._replica.consumer, "NX", "PX", lease)
        )

"""Beside the way: keeps alive what is in work, and takes over what others left.

One task per lane, a round at every third of the visibility timeout, and after trouble and after a suspect.
It goes on while the replica drains, so that what is still being sent is not reclaimed by others.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable

from redis import exceptions as errors

from common.log import Log
from common.service import either
from dispatcher.keep_alive import keep_alive
from dispatcher.lane import Lane
from dispatcher.reclaim import find, reap, reclaim

log = Log("dispatcher")

MOST = 100  # entries looked at in one call
SILENCE = 3  # visibility timeouts after which a consumer that owns nothing is removed


class Tender:
    """Tends one lane."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._replica = lane.replica
        self._visibility = lane.replica.settings.dispatcher.visibility_timeout
        self._reclaim_from = "-"
        self._find_from = "-"
        self._again = asyncio.Event()  # the next round is not to wait for its time

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            pause = self._visibility / 3 * (0.9 + 0.2 * random.random())  # noqa: S311 - jitter
            await either(self._again, pause)
            self._again.clear()
            try:
                await self._round()
            except errors.RedisError as fault:
                self._reclaim_from = self._find_from = "-"
                await self._lane.trouble.wait_out(fault, patient=True)
                self._again.set()  # others take over what is in work here unless it is kept alive

    async def _round(self) -> None:
        await self._keep_alive()
        replica = self._replica
        if not replica.pulse.steady() or not self._normal():
            return
        await self._reclaim()
        await self._find()
        removed = await reap(replica.redis, self._lane.keys, silence=SILENCE * self._visibility.ms)
        if removed:
            log.info("consumers_removed", destination=self._lane.name, consumers=" ".join(removed))

    def _normal(self) -> bool:
        """Whether more may be taken; what a ramp holds back, reclaim does not get around."""
        if self._lane.outlook.ramping:
            return False
        return self._replica.quarantine.open.is_set() and not self._replica.stopping.is_set()

    async def _keep_alive(self) -> None:
        lane, replica = self._lane, self._replica
        ids = list(lane.in_work)
        if ids:
            gone, vanished = await keep_alive(replica.redis, lane.keys, replica.consumer, ids)
            # What is being settled may be gone by right, its answer being on the way on another connection.
            ended = {item.entry.id for item in lane.settler.under_way}
            for told, found in (("entries_taken_over", gone), ("entries_vanished", vanished)):
                still = [entry_id for entry_id in found if entry_id in lane.in_work and entry_id not in ended]
                if still:
                    log.warning(told, destination=lane.name, count=len(still), first=still[0])
        replica.pulse.beat()

    async def _reclaim(self) -> None:
        lane, replica = self._lane, self._replica
        async with lane.step:
            most = min(MOST, lane.free)
            if most <= 0 or not self._normal():
                return
            found = await reclaim(
                replica.redis,
                lane.keys,
                replica.consumer,
                idle=self._visibility.ms,
                most=most,
                start=self._reclaim_from,
                in_work=list(lane.in_work),
            )
            self._reclaim_from = found.following
            lane.metrics.reclaimed.inc(len(found.entries))
            if found.lost:
                log.error("entries_lost", destination=lane.name, count=found.lost)
            if found.gate:
                lane.hand_back(found.entries)
                return
            await lane.take_over(found.entries)
        if found.suspect and replica.quarantine.ready() and self._normal():
            self._isolate(found.suspect)

    def _isolate(self, suspect: str) -> None:
        log.warning("suspect_alone", destination=self._lane.name, entry=suspect)
        work = self._replica.quarantine.isolate(lambda: self._deliver_alone(suspect))
        self._replica.tasks.create_task(self._watched(work))

    async def _watched(self, work: Awaitable[None]) -> None:
        try:
            await work
            await self._replica.quarantine.rest()
        except errors.RedisError as fault:
            await self._lane.trouble.wait_out(fault)
        self._again.set()  # for the next suspect: two crashes in a row leave as many as were in work

    async def _deliver_alone(self, suspect: str) -> None:
        lane, replica = self._lane, self._replica
        found = await reclaim(
            replica.redis,
            lane.keys,
            replica.consumer,
            idle=self._visibility.ms,
            most=1,
            start=suspect,
            in_work=[],
            alone=suspect,
        )
        lane.metrics.reclaimed.inc(len(found.entries))
        if found.gate:
            lane.hand_back(found.entries)
        else:
            await lane.take_over(found.entries)
        await lane.idle()

    async def _find(self) -> None:
        lane, replica = self._lane, self._replica
        async with lane.step:
            most = min(MOST, lane.free)
            if most <= 0 or not self._normal():
                return
            self._find_from, entries = await find(
                replica.redis,
                lane.keys,
                replica.consumer,
                most=most,
                start=self._find_from,
                in_work=list(lane.in_work.values()),
            )
            if entries:
                log.warning("entries_unreachable", destination=lane.name, count=len(entries))
                lane.metrics.reclaimed.inc(len(entries))
                await lane.take_over(entries)

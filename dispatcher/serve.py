"""Dispatcher as a process: one lane per destination, probes and metrics, and an orderly end.

Takes settings, serves until told to stop, then drains: takes nothing more, hands back what was not sent,
waits for what was sent up to `drain_timeout`, and leaves the group. Raises Unstartable.
"""

from __future__ import annotations

import asyncio

from redis import exceptions as errors

from common import connect
from common.http import Server, Site, serve
from common.log import Log
from common.service import Unstartable, calm_collector, reach
from common.settings import Settings
from dispatcher.destinations.base import Unusable
from dispatcher.lane import Lane
from dispatcher.measure import Queues, measure
from dispatcher.metrics import Metrics
from dispatcher.quarantine import Quarantine
from dispatcher.reclaim import reap
from dispatcher.replica import Clock, Pulse, Replica, consumer_name
from dispatcher.take import make_group
from dispatcher.tend import Tender

LONGEST_BLOCK = 1.0  # seconds that the bell waits in one call

log = Log("dispatcher")


class _Drained(Exception):
    """Nothing is left to do."""


class Service:
    """The parts of one process."""

    def __init__(self, settings: Settings, stop: asyncio.Event) -> None:
        self._settings = settings
        self._stop = stop
        names = [destination.name for destination in settings.destinations]
        connections = 4 + 5 * len(names)  # taking, claiming, settling, tending, and one to spare for each
        self.redis = connect.client(settings.redis, connections=connections)
        self._metrics = Metrics(names)
        self._queues = Queues(self._metrics.registry, names, settings.queue.max_depth)
        self._replica = Replica(
            redis=self.redis,
            bell=connect.client(settings.redis, connections=connections, blocking=LONGEST_BLOCK),
            consumer=consumer_name(),
            settings=settings,
            metrics=self._metrics,
            quarantine=Quarantine(),
            clock=Clock(),
            pulse=Pulse(settings.dispatcher.visibility_timeout),
            stopping=stop,
            tasks=asyncio.TaskGroup(),
        )
        self._lanes = [Lane(self._replica, destination) for destination in settings.destinations]
        self._replica.quarantine.wards = list(self._lanes)
        self._seen = False

    async def listen(self) -> Server:
        """Serve probes and metrics. Raises CannotListen."""
        site = Site({}, ready=self._why_not_ready, registry=self._metrics.registry)
        return await serve(site, self._settings.dispatcher.listen, setting="dispatcher.listen")

    async def work(self, server: connect.Server) -> None:
        """Deliver until told to stop, then drain."""
        for kind in server.unsafe:
            self._metrics.unsafe[kind].set(1)
            log.warning("redis_unsafe", kind=kind)
        await self._make_groups()
        self._seen = True
        calm_collector()
        log.info("delivering", consumer=self._replica.consumer, destinations=len(self._lanes))
        try:
            async with self._replica.tasks as group:  # a bug in any task ends the process
                for lane in self._lanes:
                    group.create_task(lane.settler.run())
                    group.create_task(Tender(lane).run())
                group.create_task(self._measure())
                running = [group.create_task(lane.run()) for lane in self._lanes]
                await self._stop.wait()
                await self._drain(running)
                raise _Drained
        except* _Drained:
            log.info("drained")  # and every task that was left is cancelled

    async def _make_groups(self) -> None:
        for lane in self._lanes:
            try:
                await make_group(self.redis, lane.keys)
            except errors.RedisError as fault:
                await lane.trouble.wait_out(fault)  # the lane makes it again when it is missed

    async def _measure(self) -> None:
        names = [lane.name for lane in self._lanes]
        await measure(self.redis, self._settings.redis.namespace, names, self._queues, self._metrics)

    async def _drain(self, running: list[asyncio.Task[None]]) -> None:
        log.info("draining", in_work=sum(len(lane.in_work) for lane in self._lanes))
        try:
            async with asyncio.timeout(self._settings.dispatcher.drain_timeout):
                await asyncio.gather(*running, *(lane.idle() for lane in self._lanes))
        except TimeoutError:
            log.warning("drain_incomplete", left=sum(len(lane.in_work) for lane in self._lanes))
        await asyncio.gather(*(self._leave(lane) for lane in self._lanes))

    async def _leave(self, lane: Lane) -> None:
        await lane.close()
        try:
            await reap(self.redis, lane.keys, silence=0, only=self._replica.consumer)
        except errors.RedisError as fault:
            log.info("left_without_goodbye", destination=lane.name, error=fault)  # others will reap it

    async def close(self) -> None:
        """Let go of Redis."""
        await self.redis.aclose()
        await self._replica.bell.aclose()

    def _why_not_ready(self) -> str | None:
        if self._stop.is_set():
            return "draining"
        return None if self._seen else "Redis has not answered yet"


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. Raises Unstartable and CannotListen."""
    try:
        service = Service(settings, stop)
    except Unusable as fault:
        raise Unstartable(str(fault)) from fault
    server = await service.listen()
    log.info("listening", address=server.address)
    try:
        redis = await reach(service.redis, settings, stop)
        if redis is not None:
            await service.work(redis)
    finally:
        await server.close(0)
        await service.close()

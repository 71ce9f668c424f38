"""Dispatcher as a process: one lane per destination, probes and metrics, and an orderly end.

Takes settings, serves until told to stop, then drains: takes nothing more, hands back what was not sent,
waits for what was sent up to `drain_timeout`, and leaves the group. Raises Unstartable.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from msgspec import structs

from common import connect, telemetry
from common.canary import beside, canaries
from common.http import Site
from common.listen import Server, serve
from common.log import Log
from common.reload import Refused, Watch
from common.service import Unstartable, calm_collector, reach
from common.settings import Destination, Settings
from common.storm import storms
from dispatcher import canary
from dispatcher.lanes import Lanes, Life
from dispatcher.measure import Queues, measure
from dispatcher.metrics import Metrics
from dispatcher.quarantine import Quarantine
from dispatcher.replica import Clock, Pulse, Replica, consumer_name
from dispatcher.sweep import Sweeper

if TYPE_CHECKING:
    from common.otel import Telemetry

LONGEST_BLOCK = 1.0  # seconds that the bell waits in one call

Made: TypeAlias = tuple[dict[str, Life], dict[str, Life]]  # lanes of destinations, and of canaries

log = Log("dispatcher")


class _Drained(Exception):
    """Nothing is left to do."""


class Service:
    """The parts of one process."""

    def __init__(self, settings: Settings, stop: asyncio.Event, spans: Telemetry | None = None) -> None:
        self._settings = settings
        self._stop = stop
        self.redis = connect.client(settings.redis)
        self._metrics = Metrics()
        self._queues = Queues(self._metrics.registry)
        self._tasks = asyncio.TaskGroup()
        self._replica = Replica(
            redis=self.redis,
            bell=connect.client(settings.redis, blocking=_patience(settings)),
            consumer=consumer_name(),
            settings=settings,
            metrics=self._metrics,
            quarantine=Quarantine(),
            clock=Clock(),
            pulse=Pulse(settings.dispatcher.visibility_timeout),
            stopping=stop,
            tasks=self._tasks,
            telemetry=spans,
        )
        self._lanes = Lanes(self._replica)
        self._canary_figures = canary.Figures(self._metrics.registry)
        apart = structs.replace(self._replica, metrics=self._canary_figures, sink=self._sink, telemetry=None)
        self._canaries = Lanes(apart)
        self._made: Made = {}, {}
        self._seen = False

    async def make(self) -> None:
        """The lanes, which begin when Redis has been seen. Raises Refused."""
        self._made = await self._make(self._settings)
        self._queues.configure(self._settings)

    async def listen(self) -> Server:
        """Serve probes and metrics. Raises CannotListen."""
        site = Site({}, ready=self._why_not_ready, registry=self._metrics.registry)
        return await serve(site, self._settings.dispatcher.listen, setting="dispatcher.listen")

    async def work(self, server: connect.Server, watch: Watch) -> None:
        """Deliver until told to stop, then drain."""
        for kind in server.unsafe:
            self._metrics.unsafe[kind].set(1)
            log.warning("redis_unsafe", kind=kind)
        try:
            async with self._tasks as tasks:  # a bug in any task ends the process
                await self._begin()
                tasks.create_task(
                    measure(self.redis, self._settings.redis.namespace, self._queues, self._metrics)
                )
                tasks.create_task(Sweeper(self._replica).run())
                tasks.create_task(storms.keep_telling())
                following = watch.follow(self._settings, self._take, self._metrics.reload_failed.set)
                watching = tasks.create_task(following)
                await self._stop.wait()
                watching.cancel()
                log.info("draining", in_work=self._lanes.in_work)
                await asyncio.gather(self._lanes.drain(), self._canaries.drain())
                raise _Drained
        except* _Drained:
            storms.tell()
            log.info("drained")  # and every task that was left is cancelled

    async def _begin(self) -> None:
        self._use(self._settings, self._made)
        await asyncio.gather(self._lanes.begun(), self._canaries.begun())
        self._seen = True
        calm_collector()
        log.info("delivering", consumer=self._replica.consumer, destinations=len(self._lanes))

    async def _take(self, settings: Settings) -> None:
        """Go on with other settings. Raises Refused."""
        self._use(settings, await self._make(settings))

    async def _make(self, settings: Settings) -> Made:
        return await self._lanes.make(settings), await self._canaries.make(canaries(settings))

    def _sink(self, destination: Destination) -> canary.Sink:
        """Where canaries end."""
        name = beside(destination.name)
        return canary.Sink(lambda: self._lanes.lane(name), destination.timeout)

    def _use(self, settings: Settings, made: Made) -> None:
        self._settings = settings
        lanes, canary_lanes = made
        self._lanes.use(settings, lanes)
        self._queues.configure(settings)
        wanted = canaries(settings)
        self._canaries.use(wanted, canary_lanes)
        self._canary_figures.configure(beside(each.name) for each in wanted.destinations)
        lanes_at_all = len(self._lanes) + len(self._canaries)
        connections = 4 + 5 * lanes_at_all  # taking, claiming, settling, tending, and one to spare each
        for client in (self.redis, self._replica.bell):
            connect.allow(client, connections)

    async def close(self) -> None:
        """Let go of Redis."""
        await self.redis.aclose()
        await self._replica.bell.aclose()

    def _why_not_ready(self) -> str | None:
        if self._stop.is_set():
            return "draining"
        return None if self._seen else "Redis has not answered yet"


def _patience(settings: Settings) -> float:
    """The longest that a command waits in Redis, seconds: for the bell, or for what goes on to be safe."""
    ingest = settings.ingest
    return max(LONGEST_BLOCK, 0.0 if ingest.durability == "written" else ingest.durability_timeout)


async def run(settings: Settings, stop: asyncio.Event, watch: Watch) -> None:
    """Serve until `stop` is set. Raises Unstartable and CannotListen."""
    spans = telemetry.begin("dispatcher")
    service = Service(settings, stop, spans)
    try:
        await service.make()
    except Refused as fault:
        raise Unstartable(str(fault)) from fault
    server = await service.listen()
    log.info("listening", address=server.address)
    try:
        goes_on = any(destination.follow_ups for destination in settings.destinations)
        durability = settings.ingest.durability if goes_on else "written"
        redis = await reach(service.redis, settings, stop, "dispatcher", durability=durability)
        if redis is not None:
            await service.work(redis, watch)
    finally:
        await server.close(0)
        await service.close()
        if spans is not None:
            await spans.close()

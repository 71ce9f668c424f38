"""The console as a process: listens at once, looks at Redis, serves until it is told to stop.

Takes settings. Redis that is away is no reason not to start, since the page is where one looks then; one that
can't be used is Unstartable. At the end streams are closed and jobs are stopped, each after its batch.
"""

from __future__ import annotations

import asyncio

from msgspec import structs
from redis import exceptions as errors

from common import connect
from common.http import Site
from common.listen import Server, serve
from common.log import Log
from common.reload import Refused
from common.reload import Watch as Configuration
from common.service import Unstartable, allowed, calm_collector, either
from common.settings import Settings
from common.units import Duration
from common.wire import Wire
from ops.console import render
from ops.console.desk import Desk
from ops.console.door import Door
from ops.console.jobs import Jobs
from ops.console.listen import too_open
from ops.console.live import Live
from ops.console.metrics import Metrics
from ops.console.site import PATHS, routes
from ops.console.watch import Watch

CONNECTIONS = 16  # to Redis
PATIENCE = Duration(2)  # for one answer of Redis, at least: a person waits longer than a sender does
GRACE = 5.0  # seconds for requests under way at the end
PAUSE = 1.0  # seconds between two looks whether Redis is there

log = Log("console")


class Service:
    """The parts of one process."""

    def __init__(self, settings: Settings, stop: asyncio.Event) -> None:
        self._stop = stop
        blocking = 0.0 if settings.ingest.durability == "written" else settings.ingest.durability_timeout
        section = structs.replace(settings.redis, timeout=max(settings.redis.timeout, PATIENCE))
        self._redis = connect.client(section, connections=CONNECTIONS, blocking=blocking)
        self.metrics = metrics = Metrics(PATHS)
        watch = Watch(self._redis, settings, metrics.troubled)
        self.desk = Desk(
            settings=settings,
            redis=self._redis,
            wire=Wire(self._redis),
            door=Door(settings.console),
            watch=watch,
            live=Live(watch, metrics.viewers.set),
            jobs=Jobs(self._redis, metrics.troubled, metrics.jobs.set),
            metrics=metrics,
        )
        watch.extra = self.desk.jobs.board
        self.site = Site(
            routes(self.desk),
            ready=lambda: "draining" if stop.is_set() else None,
            registry=metrics.registry,
            observe=metrics.request,
            present=render.refusal,
        )

    async def work(self, settings: Settings, configuration: Configuration) -> None:
        """Look at Redis and at the configuration until told to stop. Raises Unstartable."""
        async with asyncio.TaskGroup() as tasks:
            following = configuration.follow(settings, self._take, self.metrics.reload_failed.set)
            working = [tasks.create_task(each) for each in (self.desk.watch.run(), following)]
            try:
                await self._inspect()
                await self._stop.wait()
            finally:
                for task in working:
                    task.cancel()

    async def close(self, server: Server) -> None:
        """Jobs end after their batches, streams at once; then the rest."""
        await self.desk.jobs.close()
        self.desk.live.close()
        await server.close(GRACE)
        await self.desk.wire.close()
        await self._redis.aclose()

    async def _inspect(self) -> None:
        """Once Redis answers, whether it can be used."""
        settings = self.desk.settings
        while not self._stop.is_set():
            try:
                await connect.inspect(self._redis, settings.redis)
                await allowed(self._redis, settings, "console", settings.ingest.durability)
            except (connect.Unusable, errors.NoPermissionError) as fault:
                raise Unstartable(str(fault)) from fault
            except errors.RedisError:
                await either(self._stop, PAUSE)  # the page says it, and so does the log
            else:
                return

    async def _take(self, settings: Settings) -> None:
        """Go on with other settings. Raises Refused."""
        fault = too_open(settings.console)
        if fault is not None:
            raise Refused(f"console.{fault[0]}: {fault[1]}")
        self.desk.settings = settings
        self.desk.door.configure(settings.console)
        self.desk.watch.configure(settings)


async def run(settings: Settings, stop: asyncio.Event, configuration: Configuration) -> None:
    """Serve until `stop` is set. Raises Unstartable and CannotListen."""
    fault = too_open(settings.console)
    if fault is not None:
        raise Unstartable(f"console.{fault[0]}: {fault[1]}")
    service = Service(settings, stop)
    server = await serve(service.site, settings.console.listen, setting="console.listen")
    log.info("listening", address=server.address)
    calm_collector()
    try:
        await service.work(settings, configuration)
    except* Unstartable as faults:
        raise faults.exceptions[0] from None
    finally:
        log.info("stopping")
        await service.close(server)

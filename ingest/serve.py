"""Ingest as a process: listens at once, connects to Redis, serves until it is told to stop.

Takes settings. Before Redis has been seen it answers 503; one that does not come in time, or can't be used,
is Unstartable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from redis.asyncio import Redis

from common import connect, telemetry, trace
from common.canary import canaries
from common.http import PROBES, Handler, Problem, Request, Site
from common.listen import CannotListen, serve
from common.log import Log
from common.reload import Refused, Watch
from common.service import calm_collector, reach
from common.settings import Settings
from common.shared import Row
from common.storm import storms
from common.trouble import Kind
from common.wire import Wire
from ingest import append, operations, page, receipt
from ingest.append import Appender
from ingest.canary import Canaries
from ingest.evaluate import Evaluator
from ingest.event import Event, Reading, Unavailable
from ingest.metrics import Metrics
from ingest.receipt import Receipts
from ingest.receive import Receiver
from ingest.refuse import refuse
from ingest.route import Router
from ingest.senders import Sender, Senders, too_open
from ingest.spans import Spanned, spanned
from ingest.spend import Spender
from ingest.tls import Certificates, TlsFault

if TYPE_CHECKING:
    from common.otel import Telemetry

PATHS = (*operations.PATHS, *PROBES)  # also the label `route` of metrics
QUIET = 5.0  # seconds between two log lines about Redis
GRACE = 10.0  # seconds for requests under way at the end

log = Log("ingest")


class _Absent:
    """Stands in for append, evaluate and spend until Redis has been seen."""

    async def submit(self, items: list[Event] | list[Reading], size: int = 0) -> NoReturn:
        raise Unavailable("Redis has not answered yet")

    async def spend(self, sender: Sender, alerts: int) -> NoReturn:
        raise Unavailable("Redis has not answered yet")


class Service:
    """The parts of one process, and in which state they are."""

    def __init__(self, settings: Settings, row: Row | None = None, spans: Telemetry | None = None) -> None:
        self._settings = settings
        self._spans = spans
        blocking = 0.0 if self._durability == "written" else settings.ingest.durability_timeout
        self._redis: Redis = connect.client(settings.redis, blocking=blocking)
        self._evaluating, self._spending = Wire(self._redis), Wire(self._redis)
        self._appending = [Wire(self._redis) for _ in range(append.WIRES)]
        self._reading = Wire(self._redis)  # receipts do not wait for what is stored, nor the other way round
        self._evaluator: Evaluator | None = None
        self._appender: Appender | None = None
        self._spender: Spender | None = None
        self.canaries = Canaries()
        self._cluster = False
        self.draining = False
        self._told = float("-inf")  # when the log last heard of trouble
        absent = _Absent()
        self._senders = Senders(settings.tokens)
        self.metrics = Metrics(PATHS, row)
        self.metrics.begin()
        self.site = Site(
            self._routes(self._receiver(settings, absent, absent, absent)),
            ready=self._why_not_ready,
            registry=self.metrics.registry,
            observe=self.metrics.request,
            refused=self._refused,
        )

    async def reach_redis(self, stop: asyncio.Event) -> None:
        """Until Redis answers or `stop` is set. Raises Unstartable."""
        server = await reach(self._redis, self._settings, stop, "ingest", durability=self._durability)
        if server is not None:
            self._begin(server)

    async def close(self) -> None:
        """Finish what is under way and let go of Redis."""
        await self.canaries.close()
        if self._evaluator is not None:
            await self._evaluator.close()
        if self._appender is not None:
            await self._appender.close()
        if self._spender is not None:
            await self._spender.close()
        await self._reading.close()
        await self._redis.aclose()

    @property
    def _durability(self) -> str:
        return self._settings.ingest.durability

    def _begin(self, server: connect.Server) -> None:
        for kind in server.unsafe:
            self.metrics.redis_unsafe[kind].set(1)
            log.warning("redis_unsafe", kind=kind)
        self._cluster = server.cluster
        self._use(self._settings)
        version = ".".join(map(str, server.version))
        log.info("redis_seen", server=server.kind, version=version, durability=self._durability)

    async def take(self, settings: Settings) -> None:
        """From the next request on everything is done with these settings. Raises Refused."""
        fault = too_open(settings)
        if fault is not None:
            raise Refused(f"ingest.listen: {fault}")
        self._use(settings)

    def _use(self, settings: Settings) -> None:
        """Make all steps anew; a request that has begun goes through all of the old ones."""
        self._senders = Senders(settings.tokens)
        evaluator = Evaluator(self._redis, settings, troubled=self._troubled, wire=self._evaluating)
        spender = Spender(self._redis, settings, troubled=self._troubled, wire=self._spending)
        appender = self._appender_of(settings, self.metrics.appended)
        self.canaries.use(self._appender_of(canaries(settings)), settings.canary.every)
        steps = self._receiver(settings, appender, evaluator, spender)
        self._settings, self._spender = settings, spender
        self._evaluator, self._appender = evaluator, appender
        self.site.replace(self._routes(steps))

    def _appender_of(
        self, settings: Settings, measured: Callable[[int, float], None] = lambda size, seconds: None
    ) -> Appender:
        return Appender(
            self._redis,
            settings,
            Router(settings),
            cluster=self._cluster,
            measured=measured,
            troubled=self._troubled,
            wires=self._appending,
        )

    def _routes(self, steps: Receiver) -> dict[str, Mapping[str, Handler]]:
        names = [destination.name for destination in self._settings.destinations]
        receipts = Receipts(self._reading, self._settings.redis.namespace, names, self._troubled)
        guarded = self._senders.guard(receipts.receipt)
        posts = steps.handlers()
        if self._spans is not None:
            posts = spanned(posts, self._spans)
        return operations.routes({**posts, **page.handlers(), receipt.ROUTE: guarded})

    def _receiver(
        self,
        settings: Settings,
        appender: Appender | _Absent,
        evaluator: Evaluator | _Absent,
        spender: Spender | _Absent,
    ) -> Receiver:
        spans = self._spans
        return Receiver(
            settings.ingest,
            appender if spans is None else Spanned(appender, spans),
            evaluator,
            spender,
            self.metrics,
            hooks=settings.hooks,
            senders=self._senders,
            trace_of=trace.taken if spans is None else lambda headers: None,  # that of a span is given
        )

    def _refused(self, request: Request, route: str, problem: Problem, seconds: float) -> None:
        refuse(request, route, problem, seconds, self._senders)

    def _troubled(self, kind: Kind) -> None:
        """Every error is counted, and one in `QUIET` seconds told."""
        self.metrics.troubled(kind)
        now = asyncio.get_running_loop().time()
        if now - self._told >= QUIET:
            self._told = now
            log.warning("redis_trouble", kind=kind.value, redis=connect.masked(self._settings.redis.url))

    def _why_not_ready(self) -> str | None:
        if self.draining:
            return "draining"
        return None if self._appender is not None else "Redis has not answered yet"


async def run(
    settings: Settings,
    stop: asyncio.Event,
    watch: Watch,
    row: Row | None = None,
    listen: str | None = None,
) -> None:
    """Serve until `stop` is set. Raises Unstartable and CannotListen.

    `row` and `listen`: one of several processes, which count in a table and share an address.
    """
    spans = telemetry.begin("ingest")
    service = Service(settings, row, spans)
    if row is None:
        service.metrics.workers.set(1)
    _beat(service.metrics)
    where, shared = listen or settings.ingest.listen, listen is not None
    try:
        certificates = Certificates(settings.ingest.tls)
    except TlsFault as fault:
        raise CannotListen(str(fault)) from fault
    server = await serve(
        service.site, where, setting="ingest.listen", shared=shared, tls=certificates.context
    )
    log.info("listening", address=server.address)
    try:
        await service.reach_redis(stop)
        calm_collector()
        async with asyncio.TaskGroup() as tasks:
            singing = service.canaries.run()
            following = watch.follow(settings, service.take, service.metrics.reload_failed.set)
            beside = (following, certificates.follow(), storms.keep_telling(), singing)
            watching = [tasks.create_task(each) for each in beside]
            await stop.wait()
            for task in watching:
                task.cancel()
    finally:
        service.draining = True
        log.info("stopping")
        await server.close(GRACE)
        await service.close()
        storms.tell()
        if spans is not None:
            await spans.close()


def _beat(metrics: Metrics) -> None:
    """Every second, as long as the event loop runs."""
    metrics.beat()
    asyncio.get_running_loop().call_later(1.0, _beat, metrics)

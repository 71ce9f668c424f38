"""Ingest's HTTP side without Redis: an appender that remembers, or refuses when told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NoReturn

from common.http import PROBES, Problem, Request, Site
from common.listen import KEEPALIVE, serve
from common.settings import Hook, Ingest, Rule, Token
from ingest import operations, page, receipt
from ingest.arrive import Arrivals
from ingest.event import Event, Reading, Stored, Unavailable
from ingest.metrics import Metrics
from ingest.receive import Receiver
from ingest.rules import Rules
from ingest.senders import Sender, Senders
from ingest.tls import Certificates

NOW = 1_772_439_300_000
RULES = Rules(
    [Rule(name="full", metric="disk", when=">= 100"), Rule(name="warm", metric="disk", when="> 50")]
)


class Memory:
    """All that lies behind, in one. `down` refuses; `hold` is waited for; what was stored is in `events`.

    `wait` is what senders with a rate are told; what they paid for is in `spent`.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.readings: list[Reading] = []
        self.spent: list[tuple[str, int]] = []
        self.wait = 0.0
        self.down = False
        self.broken = False
        self.hold: asyncio.Event | None = None
        self.begun = asyncio.Event()
        self.stored = asyncio.Event()

    def appender(self) -> _Appender:
        """For a Receiver."""
        return _Appender(self)

    def evaluator(self) -> _Evaluator:
        """For a Receiver."""
        return _Evaluator(self)

    def spender(self) -> _Spender:
        """For a Receiver."""
        return _Spender(self)

    async def take(self) -> None:
        """What appender and evaluator do first."""
        self.begun.set()
        if self.hold is not None:
            await self.hold.wait()
        if self.broken:
            raise RuntimeError("secret details")
        if self.down:
            raise Unavailable("Redis is away", retry_after=3)


class _Spender:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def spend(self, sender: Sender, alerts: int) -> float:
        if self._memory.down:
            raise Unavailable("Redis is away", retry_after=3)
        self._memory.spent.append((sender.name, alerts))
        return self._memory.wait


class _Appender:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._seen: set[str] = set()

    async def submit(self, events: list[Event], size: int = 0) -> list[Stored]:
        await self._memory.take()
        return [self._store(event) for event in events]

    def _store(self, event: Event) -> Stored:
        key = event.key or f"{event.alert.incident}:{event.alert.timestamp}"
        known = key in self._seen
        self._seen.add(key)
        self._memory.events.append(event)
        self._memory.stored.set()
        return Stored(key, "duplicate" if known else "queued", ["pager"], ["chat"])


class _Evaluator:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def submit(self, readings: list[Reading]) -> list[list[Event]]:
        await self._memory.take()
        self._memory.readings += readings
        return [[judgement.event() for judgement in RULES.judge(reading)] for reading in readings]


class Served:
    """A running ingest; `address` is `127.0.0.1:port`."""

    def __init__(self, memory: Memory, metrics: Metrics) -> None:
        self.memory = memory
        self.metrics = metrics
        self.unready: str | None = None
        self.answers: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self.address = ""
        self.certificates: Certificates
        self.arrivals: Arrivals

    @property
    def url(self) -> str:
        """Without a slash at the end."""
        return f"http://{self.address}"

    def observe(self, route: str, code: int, seconds: float) -> None:
        """Told of each answer; `answers` has its route and status."""
        self.metrics.request(route, code, seconds)
        self.answers.put_nowait((route, code))


async def _no_receipt(request: Request) -> NoReturn:
    raise Problem(404, "nothing is remembered here")


@asynccontextmanager
async def served(
    settings: Ingest,
    patience: float = 10.0,
    hooks: Sequence[Hook] = (),
    tokens: Sequence[Token] = (),
    keepalive: float = KEEPALIVE,
) -> AsyncIterator[Served]:
    """Ingest on a free port, at a clock that stands still."""
    memory, metrics = Memory(), Metrics((*operations.PATHS, *PROBES))
    steps = memory.appender(), memory.evaluator(), memory.spender()
    receiver = Receiver(settings, *steps, metrics, lambda: NOW, patience, hooks, Senders(tokens))
    made = Served(memory, metrics)
    made.arrivals = receiver.arrivals
    site = Site(
        operations.routes({**receiver.handlers(), **page.handlers(), receipt.ROUTE: _no_receipt}),
        ready=lambda: made.unready,
        registry=metrics.registry,
        observe=made.observe,
    )
    made.certificates = Certificates(settings.tls)
    tls = made.certificates.context
    server = await serve(site, "127.0.0.1:0", setting="ingest.listen", tls=tls, keepalive=keepalive)
    made.address = server.address
    yield made
    await server.close(1)

"""How fast a webhook is, beside a bare aiohttp client that posts the same JSON to the same receiver.

Three ways in turns, with as many requests under way: the bare client, the type `webhook` by itself, and a
whole dispatcher that empties a queue. Returns rates, and how busy the receiver was. Raises Broken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import aiohttp
from msgspec import Struct
from rich.progress import Progress

from benchmarks.fill import NAMESPACE, alert, fill
from benchmarks.stack import Broken, Server, Stack, free_port
from common.outcomes import OutcomeKind
from common.units import Secret
from dispatcher.destinations.base import Delivery
from dispatcher.destinations.payload import body
from dispatcher.destinations.webhook import Settings, Webhook, make

CONCURRENCY = 64
SLICES = 10  # turns within a round, so that both meet the same moments of a busy machine
SECRET = "whsec_" + "A" * 32
JSON = {"Content-Type": "application/json"}
LOOK = 0.05  # seconds between two looks at the receiver


class Run(Struct, frozen=True):
    """Requests per second, the client's CPU per request, microseconds, and the receiver's share of a core."""

    rate: float
    client: float
    receiver: float


class Round(Struct, frozen=True):
    """The three ways; of the dispatcher's CPU nothing is known."""

    bare: Run
    kind: Run
    dispatcher: Run


class _Look(Struct, frozen=True):
    """Requests, and seconds: of the receiver's CPU, of ours, of the clock. They can be added up."""

    taken: int = 0
    receiver: float = 0.0
    client: float = 0.0
    clock: float = 0.0

    def plus(self, before: _Look, after: _Look) -> _Look:
        return _Look(
            self.taken + after.taken - before.taken,
            self.receiver + after.receiver - before.receiver,
            self.client + after.client - before.client,
            self.clock + after.clock - before.clock,
        )

    def run(self) -> Run:
        return Run(self.taken / self.clock, self.client / self.taken * 1e6, self.receiver / self.clock)


class _Receiver:
    """Asks the sink what it took."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._session = session

    async def look(self) -> _Look:
        async with self._session.get(self.url) as answer:
            taken, cpu = await answer.json(content_type=None)
        return _Look(int(taken), float(cpu), time.process_time(), time.perf_counter())

    async def measure(self, so_far: _Look, run: Awaitable[object]) -> _Look:
        before = await self.look()
        await run
        return so_far.plus(before, await self.look())


async def compare(stack: Stack, server: Server, progress: Progress, rounds: int, count: int) -> list[Round]:
    """So many rounds of so many requests each way, after a short one that is not counted."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/hook"
    sink = await stack.module("benchmarks.sink", stack.config(_config(server, url)), str(port))
    await sink.event("listening")
    task = progress.add_task("webhook beside a bare client", total=rounds)
    done: list[Round] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONCURRENCY)) as session:
        receiver = _Receiver(url, session)
        webhook = make(_settings(url))
        await _side_by_side(receiver, session, webhook, count // 4)
        for _ in range(rounds):
            bare, kind = await _side_by_side(receiver, session, webhook, count)
            done.append(Round(bare, kind, await _dispatcher(stack, server, receiver, progress, count)))
            progress.advance(task)
        await webhook.close()
    await sink.stop()
    return done


async def _side_by_side(
    receiver: _Receiver, session: aiohttp.ClientSession, webhook: Webhook, count: int
) -> tuple[Run, Run]:
    deliveries = _deliveries(count // SLICES)
    bodies = [body(delivery) for delivery in deliveries]

    async def post(number: int) -> None:
        async with session.post(receiver.url, data=bodies[number], headers=JSON) as answer:
            await answer.read()

    async def deliver(number: int) -> None:
        outcome = await webhook.deliver(deliveries[number])
        if outcome.kind is not OutcomeKind.DELIVERED:
            raise Broken(f"the receiver did not take a webhook: {outcome.error}")

    bare, kind = _Look(), _Look()
    for _ in range(SLICES):
        bare = await receiver.measure(bare, _at_once(post, len(bodies)))
        kind = await receiver.measure(kind, _at_once(deliver, len(bodies)))
    return bare.run(), kind.run()


def _config(server: Server, url: str) -> dict[str, object]:
    sink = {"name": "sink", "type": "webhook", "url": url, "secrets": [SECRET], "allow_private": True}
    return {
        "redis": {"url": server.url, "namespace": NAMESPACE},
        "dispatcher": {"listen": f"127.0.0.1:{free_port()}"},
        "queue": {"max_depth": 10_000_000},
        "destinations": [sink | {"max_in_flight": CONCURRENCY}],
    }


def _settings(url: str) -> Settings:
    return Settings(
        name="sink",
        type="webhook",
        url=Secret(url),
        secrets=[Secret(SECRET)],
        allow_private=True,
        max_in_flight=CONCURRENCY,
    )


async def _at_once(one: Callable[[int], Awaitable[None]], count: int) -> None:
    numbers = iter(range(count))

    async def some() -> None:
        for number in numbers:
            await one(number)

    await asyncio.gather(*(some() for _ in range(CONCURRENCY)))


def _deliveries(count: int) -> list[Delivery]:
    now = time.time_ns() // 1_000_000
    alerts = [alert(number, now) for number in range(count)]
    return [
        Delivery(
            entry_id="1-1", deliveries=1, key=f"{one.incident}:{now}", alert=one, attempt=1, first_at=now
        )
        for one in alerts
    ]


async def _dispatcher(
    stack: Stack, server: Server, receiver: _Receiver, progress: Progress, count: int
) -> Run:
    """From the first look that finds it at work until all have arrived."""
    redis = server.client()
    await redis.flushall()
    await fill(redis, server, progress, count)
    await redis.aclose()
    before = await receiver.look()
    path = stack.directory / "redispatch.yaml"
    dispatcher = await stack.module("dispatcher", path, name=f"posts-{len(stack.started)}")
    first = seen = before
    while seen.taken < before.taken + count:
        if dispatcher.code is not None:
            raise Broken(f"the dispatcher ended by itself\n{dispatcher.last_words()}")
        await asyncio.sleep(LOOK)
        seen = await receiver.look()
        first = seen if first.taken == before.taken else first
    await dispatcher.stop()
    return _Look().plus(first, seen).run()

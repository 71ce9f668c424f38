"""How fast a webhook is, beside a bare aiohttp client that posts the same bytes to the same receiver.

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
from common.outcomes import Outcome, OutcomeKind
from common.units import Secret
from dispatcher.destinations.base import Delivery
from dispatcher.destinations.payload import body
from dispatcher.destinations.webhook import Settings, make

CONCURRENCY = 64
SECRET = "whsec_" + "A" * 32
LOOK = 0.05  # seconds between two looks at the receiver


class Run(Struct, frozen=True):
    """Requests per second, and the share of a core that the receiver took."""

    rate: float
    receiver: float


class Round(Struct, frozen=True):
    """The three ways, one after the other."""

    bare: Run
    kind: Run
    dispatcher: Run


class _Receiver:
    """What the sink says of itself."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._session = session

    async def told(self) -> tuple[int, float, float]:
        """How many it took, its CPU seconds, and when."""
        async with self._session.get(self.url) as answer:
            taken, cpu = await answer.json(content_type=None)
        return int(taken), float(cpu), time.perf_counter()

    async def measure(self, run: Awaitable[object]) -> Run:
        """What it took while this ran."""
        before = await self.told()
        await run
        return _between(before, await self.told())


async def compare(stack: Stack, server: Server, progress: Progress, rounds: int, count: int) -> list[Round]:
    """So many rounds of so many requests each way, after a short one that is not counted."""
    port = free_port()
    path = stack.config(_config(server, f"http://127.0.0.1:{port}/hook"))
    sink = await stack.module("benchmarks.sink", path, str(port))
    await sink.event("listening")
    task = progress.add_task("webhook beside a bare client", total=rounds)
    done: list[Round] = []
    async with aiohttp.ClientSession() as session:
        receiver = _Receiver(f"http://127.0.0.1:{port}/hook", session)
        await receiver.measure(_bare(receiver.url, 1000))
        for _ in range(rounds):
            bare = await receiver.measure(_bare(receiver.url, count))
            kind = await receiver.measure(_kind(receiver.url, count))
            done.append(Round(bare, kind, await _dispatcher(stack, server, receiver, progress, count)))
            progress.advance(task)
    await sink.stop()
    return done


def _config(server: Server, url: str) -> dict[str, object]:
    sink = {"name": "sink", "type": "webhook", "url": url, "secrets": [SECRET], "allow_private": True}
    return {
        "redis": {"url": server.url, "namespace": NAMESPACE},
        "dispatcher": {"listen": f"127.0.0.1:{free_port()}"},
        "queue": {"max_depth": 10_000_000},
        "destinations": [sink | {"max_in_flight": CONCURRENCY}],
    }


async def _bare(url: str, count: int) -> None:
    bodies = [body(delivery) for delivery in _deliveries(count)]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONCURRENCY)) as session:

        async def post(number: int) -> None:
            async with session.post(url, data=bodies[number]) as answer:
                await answer.read()

        await _at_once(post, count)


async def _kind(url: str, count: int) -> None:
    deliveries = _deliveries(count)
    settings = Settings(
        name="sink",
        type="webhook",
        url=Secret(url),
        secrets=[Secret(SECRET)],
        allow_private=True,
        max_in_flight=CONCURRENCY,
    )
    webhook = make(settings)

    async def deliver(number: int) -> None:
        outcome: Outcome = await webhook.deliver(deliveries[number])
        if outcome.kind is not OutcomeKind.DELIVERED:
            raise Broken(f"the receiver did not take a webhook: {outcome.error}")

    await _at_once(deliver, count)
    await webhook.close()


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
    before = await receiver.told()
    path = stack.directory / "redispatch.yaml"
    dispatcher = await stack.module("dispatcher", path, name=f"posts-{len(stack.started)}")
    first = seen = before
    while seen[0] < before[0] + count:
        if dispatcher.code is not None:
            raise Broken(f"the dispatcher ended by itself\n{dispatcher.last_words()}")
        await asyncio.sleep(LOOK)
        seen = await receiver.told()
        first = seen if first[0] == before[0] else first
    await dispatcher.stop()
    return _between(first, seen)


def _between(first: tuple[int, float, float], last: tuple[int, float, float]) -> Run:
    taken, cpu, seconds = (after - before for before, after in zip(first, last, strict=True))
    return Run(taken / seconds, cpu / seconds)

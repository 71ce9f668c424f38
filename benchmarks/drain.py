"""One dispatcher that settles a full queue to `discard`, beside the commands alone: a part of `make bench`.

Takes a server, whose data it removes; returns rates, costs and what the ledger can't explain. Raises Broken.
"""

from __future__ import annotations

import asyncio
import time

from msgspec import Struct
from redis.asyncio import Redis
from rich.progress import Progress

from benchmarks.fill import NAMESPACE, fill
from benchmarks.floor import cpu, floor
from benchmarks.stack import Broken, Process, Server, Stack, free_port
from common.snapshot import snapshot

SLOTS = 2048  # of the dispatcher: enough that reading, sending and settling overlap
LOOK = 0.02  # seconds between two looks at the ledger


def config(server: Server, ingest: int) -> dict[str, object]:
    """What the services are started with."""
    return {
        "redis": {"url": server.url, "namespace": NAMESPACE},
        "ingest": {"listen": f"127.0.0.1:{ingest}"},
        "dispatcher": {"listen": f"127.0.0.1:{free_port()}"},
        "queue": {"max_depth": 10_000_000},
        "destinations": [{"name": "sink", "type": "discard", "max_in_flight": SLOTS}],
    }


class Settled(Struct, frozen=True):
    """One run: deliveries per second, what the ledger can't explain, and the server's time per delivery
    beside that of the commands alone, microseconds."""

    rate: float
    gap: int
    server: float
    floor: float


async def settle(stack: Stack, server: Server, progress: Progress, alerts: int) -> Settled:
    """One dispatcher against a full queue, every guarantee on, beside the commands alone."""
    redis = server.client()
    try:
        await redis.flushall()
        await fill(redis, server, progress, alerts)
        bare = await floor(redis, NAMESPACE, "sink")
        await redis.flushall()
        await fill(redis, server, progress, alerts)
        path = stack.config(config(server, free_port()))
        before = await cpu(redis)
        dispatcher = await stack.module("dispatcher", path, name=f"drain-{len(stack.started)}")
        rate, gap = await watch(redis, dispatcher, progress, alerts)
        used = await cpu(redis) - before
        await dispatcher.stop()
    finally:
        await redis.aclose()
    return Settled(rate, gap, used / alerts, bare)


async def watch(redis: Redis, dispatcher: Process, progress: Progress, alerts: int) -> tuple[float, int]:
    """Deliveries per second from the first to the last that was seen, and what the ledger can't explain."""
    task = progress.add_task("settling", total=alerts)
    first: tuple[float, int] | None = None
    while True:
        seen = await snapshot(redis, NAMESPACE, "sink")
        now, done = time.perf_counter(), seen.ledger.delivered
        progress.update(task, completed=done)
        if first is None and done:
            first = (now, done)
        if first is not None and seen.depth == 0:
            return (done - first[1]) / (now - first[0]), seen.unaccounted
        if dispatcher.code is not None:
            raise Broken(f"the dispatcher ended by itself\n{dispatcher.last_words()}")
        await asyncio.sleep(LOOK)

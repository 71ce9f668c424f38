"""What an alert costs: CPU of ingest, dispatcher and server at some rates, the server's memory, connections.

Takes a Stack with a server, which is emptied before; returns figures from which docs/scaling.md and
`redispatch check --rate` are made. CPU is what the system counts for each process, so that other work on the
machine disturbs little. Raises Broken when anything was refused or did not arrive.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from msgspec import Struct
from redis.asyncio import Redis
from rich.progress import Progress

from benchmarks.fill import NAMESPACE, fill
from benchmarks.floor import cpu
from benchmarks.load import load
from benchmarks.stack import Broken, Process, Server, Stack, free_port
from common.snapshot import snapshot

PACES = (200.0, 1000.0, 0.0)  # requests per second; 0: as many as go
PATIENCE = 60.0  # seconds for what was taken to be delivered
LOOK = 0.02
_TICK = os.sysconf("SC_CLK_TCK")


class Cost(Struct, frozen=True):
    """Microseconds of CPU per alert at a rate, for one webhook."""

    rate: float
    ingest: float
    dispatcher: float
    server: float


class Kept(Struct, frozen=True):
    """Bytes of the server's memory: a delivery that waits, and what is remembered of one that was made."""

    waiting: float
    remembered: float


class Scale(Struct, frozen=True):
    """All of it; connections of one ingest process, and of one dispatcher with one destination."""

    costs: list[Cost]
    kept: Kept
    ingest: int
    dispatcher: int


async def measure(stack: Stack, server: Server, progress: Progress, seconds: float, alerts: int) -> Scale:
    """Each rate for so many seconds; memory of so many alerts."""
    redis = server.client()
    task = progress.add_task("what an alert costs", total=len(PACES) + 1)
    await redis.flushall()
    ports = free_port(), free_port()
    path = stack.config(_config(server, *ports))
    sink = await stack.module("benchmarks.sink", path, str(ports[1]))
    none = await _clients(redis)
    ingest = await stack.module("ingest", path)
    dispatcher = await stack.module("dispatcher", path)
    for process, event in ((sink, "listening"), (ingest, "redis_seen"), (dispatcher, "delivering")):
        await process.event(event)
    await load(f"127.0.0.1:{ports[0]}", stack.directory, seconds=1)
    costs = []
    for pace in PACES:
        costs.append(await _cost(stack, redis, (ingest, dispatcher), ports[0], pace, seconds))
        progress.advance(task)
    both = await _clients(redis) - none
    await dispatcher.stop()
    alone = await _clients(redis) - none
    await ingest.stop()
    kept = await _kept(stack, redis, server, progress, path, alerts)
    progress.advance(task)
    await sink.stop()
    await redis.aclose()
    return Scale(costs, kept, alone, both - alone)


async def _cost(
    stack: Stack,
    redis: Redis,
    services: tuple[Process, Process],
    port: int,
    pace: float,
    seconds: float,
) -> Cost:
    await _delivered(redis)
    before = [*(_used(process.pid) for process in services), await cpu(redis)]
    taken = (await snapshot(redis, NAMESPACE, "sink")).ledger.accepted
    seen = await load(f"127.0.0.1:{port}", stack.directory, seconds=seconds, pace=pace)
    if seen.refused:
        raise Broken(f"{seen.refused} requests were refused")
    done = await _delivered(redis) - taken
    after = [*(_used(process.pid) for process in services), await cpu(redis)]
    ingest, dispatcher, server = ((late - early) / done for early, late in zip(before, after, strict=True))
    return Cost(seen.rate, ingest, dispatcher, server)


async def _kept(
    stack: Stack, redis: Redis, server: Server, progress: Progress, path: Path, alerts: int
) -> Kept:
    await redis.execute_command("FLUSHALL", "SYNC")  # in the background it would go on while memory is read
    empty = await _memory(redis)
    await fill(redis, server, progress, alerts)
    full = await _memory(redis)
    dispatcher = await stack.module("dispatcher", path, name="dispatcher-memory")
    await _delivered(redis)
    await dispatcher.stop()
    left = await _memory(redis)
    return Kept((full - left) / alerts, (left - empty) / alerts)


async def _delivered(redis: Redis) -> int:
    """How many were accepted so far, once none of them waits."""
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                seen = await snapshot(redis, NAMESPACE, "sink")
                if seen.depth == 0:
                    return seen.ledger.accepted
                await asyncio.sleep(LOOK)
    except TimeoutError:
        raise Broken("what was accepted does not arrive") from None


async def _memory(redis: Redis) -> int:
    return int((await redis.info("memory"))["used_memory"])


async def _clients(redis: Redis) -> int:
    return int((await redis.info("clients"))["connected_clients"])


def _used(pid: int) -> float:
    """Microseconds of CPU so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK * 1e6


def _config(server: Server, ingest: int, sink: int) -> dict[str, object]:
    url = f"http://127.0.0.1:{sink}/hooks"
    hook = {"name": "sink", "type": "webhook", "url": url, "allow_private": True, "max_in_flight": 256}
    return {
        "redis": {"url": server.url, "namespace": NAMESPACE},
        "ingest": {"listen": f"127.0.0.1:{ingest}"},
        "dispatcher": {"listen": f"127.0.0.1:{free_port()}"},
        "queue": {"max_depth": 10_000_000},
        "destinations": [hook],
    }

"""What of the append script's speed is left in front of ingest: bodies of 500 lines beside the script alone,
in turns, on one server.

Alone: calls that were made beforehand, several in one write, so that only the server works. Takes a Stack
with a server; returns the rates of both. Raises Broken when anything was not stored as new.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from redis.asyncio import Redis
from rich.progress import Progress

from benchmarks.stack import Broken, Server, Stack, free_port
from common.alert import Alert
from common.append import QUEUED, Store
from common.settings import Destination, Queue, Settings
from common.wire import Command, Wire

LINES = 500  # of a body, and alerts of a call
CONNECTIONS = 4
NAMESPACE = "ndjson"
TARGET = 0.5


class Beside(Struct, frozen=True):
    """Alerts per second through ingest, and those that the script alone takes."""

    ingest: float
    script: float


class _Kept(Wire):
    """Keeps the calls instead of sending them."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis)
        self.calls: list[Sequence[Command]] = []

    async def pipeline(self, commands: Sequence[Command], after: Command | None = None) -> list[Any]:
        """As if all had been new."""
        self.calls.append(commands)
        return [1, [QUEUED] * LINES]


async def beside(stack: Stack, server: Server, progress: Progress, rounds: int, bodies: int) -> list[Beside]:
    """So many bodies in each round, and as many calls."""
    task = progress.add_task("bodies of many lines beside the append script", total=2 * rounds)
    port = free_port()
    path = stack.config(
        {
            "redis": {"url": server.url, "namespace": NAMESPACE},
            "ingest": {"listen": f"127.0.0.1:{port}"},
            "queue": {"max_depth": 10_000_000},
            "destinations": [{"name": "sink", "type": "discard"}],
        }
    )
    ingest = await stack.module("ingest", path, name="ingest-ndjson")
    await ingest.event("redis_seen")
    await _post(port, list(_bodies(CONNECTIONS)))  # both scripts are there then
    redis = server.client()
    runs = []
    for _ in range(rounds):
        through = await _post(port, list(_bodies(bodies)))
        progress.advance(task)
        runs.append(Beside(through, await _call(redis, server, bodies)))
        progress.advance(task)
    await redis.aclose()
    await ingest.stop()
    return runs


def _alerts() -> list[Alert]:
    """Of one body or call; no others are like them."""
    now, own = time.time_ns() // 1_000_000, secrets.token_hex(4)
    return [
        Alert(
            incident=f"web-{number}-{own}:disk-full",
            host=f"web-{number}-{own}",
            name="disk-full",
            severity="critical",
            summary="the disk of this machine is full",
            timestamp=now,
            key=f"web-{number}-{own}:disk-full:{now // 60_000}:critical",
            source="native",
        )
        for number in range(LINES)
    ]


def _bodies(count: int) -> Iterator[bytes]:
    """Whole requests."""
    for _ in range(count):
        told = [
            {"host": each.host, "name": each.name, "severity": each.severity, "summary": each.summary}
            for each in _alerts()
        ]
        body = b"\n".join(map(msgspec.json.encode, told))
        head = "POST /v1/alerts HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
        yield f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _post(port: int, requests: list[bytes]) -> float:
    """Over some connections, each of which sends again as soon as it is answered."""
    count = len(requests)
    started = time.perf_counter()
    await asyncio.gather(*(_sender(port, requests) for _ in range(CONNECTIONS)))
    return count * LINES / (time.perf_counter() - started)


async def _sender(port: int, requests: list[bytes]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while requests:
        writer.write(requests.pop())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        told = await reader.readexactly(length)
        if not told.startswith(b'{"accepted":%d,' % LINES):
            raise Broken(f"a body of {LINES} lines was answered with {told[:100]!r}")
    writer.close()
    await writer.wait_closed()


async def _call(redis: Redis, server: Server, calls: int) -> float:
    """The script alone."""
    settings = Settings(
        redis=replace(server.section, namespace=NAMESPACE),
        queue=Queue(max_depth=10_000_000),
        destinations=[Destination(name="sink", type="discard")],
    )
    kept = _Kept(redis)
    store = Store(kept, settings, cluster=False)
    for _ in range(calls):
        await store.append(_alerts(), {"sink": range(LINES)})
    wire = Wire(redis)
    started = time.perf_counter()
    for start in range(0, calls, CONNECTIONS):
        commands = [command for call in kept.calls[start : start + CONNECTIONS] for command in call]
        for reply in await wire.pipeline(commands):
            if isinstance(reply, Exception) or (isinstance(reply, list) and set(reply) != {QUEUED}):
                raise Broken(f"the script said {str(reply)[:100]}")
    took = time.perf_counter() - started
    await wire.close()
    return calls * LINES / took

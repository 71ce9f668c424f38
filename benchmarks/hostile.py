"""Do other senders suffer from hostile ones? Their latency at a pace, alone and beside each kind of those.

20 MB of zeros in gzip and in zstd, over some connections, each again as soon as it was refused; bodies of one
byte per second; 10,000 connections that say nothing; and all of them at once. Against one ingest process.
"""

from __future__ import annotations

import asyncio
import gzip
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct
from rich.progress import Progress

from benchmarks.load import load
from benchmarks.stack import Broken, Server, Stack, free_port
from common.connections import room

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACE = 500  # alerts a second of the others
ZEROS = bytes(20_000_000)
BOMBERS, SLOW, IDLE = 4, 500, 10_000  # connections
TARGET = 20.0  # ms
NAMES = {
    "alone": "alone",
    "gzip": f"beside {BOMBERS} with 20 MB of zeros in gzip",
    "zstd": f"beside {BOMBERS} with 20 MB of zeros in zstd",
    "slow": f"beside {SLOW} bodies of one byte per second",
    "idle": f"beside {IDLE:,} idle connections",
    "all": "beside all of these",
}


class Beside(Struct, frozen=True):
    """The others' latency beside one kind, ms; what they did not get; ingest's memory, MiB; bombs refused."""

    kind: str
    p50: float
    p99: float
    refused: int
    memory: float
    bombs: int


class Crowd:
    """Hostile connections to `port`, until it is left."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self._awaited = 0
        self.complete = asyncio.Event()
        self.bombs = 0

    def await_all(self, connections: int) -> None:
        """`complete` is set when there are so many."""
        self._awaited = connections
        if not connections:
            self.complete.set()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """One more."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(writer)
        if len(self._writers) == self._awaited:
            self.complete.set()
        return reader, writer

    def close(self) -> None:
        """All of them."""
        for writer in self._writers:
            writer.transport.abort()

    async def bomb(self, encoding: str, body: bytes) -> None:
        """The same again and again."""
        head = _head(len(body), f"Content-Encoding: {encoding}\r\n")
        reader, writer = await self.connect()
        while True:
            writer.write(head + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 413"):
                raise Broken(f"a bomb was answered with {answer[:60]!r}")
            length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            self.bombs += 1

    async def drip(self) -> None:
        """One byte per second, from the beginning when ingest has had enough."""
        while True:
            _, writer = await self.connect()
            writer.write(_head(1000))
            while not writer.transport.is_closing():
                writer.write(b" ")
                await asyncio.sleep(1)

    async def idle(self) -> None:
        """Nothing."""
        _, writer = await self.connect()
        await writer.wait_closed()


def _head(length: int, more: str = "") -> bytes:
    lines = "POST /v1/alerts HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{lines}{more}Content-Length: {length}\r\n\r\n".encode()


async def beside(stack: Stack, server: Server, progress: Progress, seconds: float) -> list[Beside]:
    """One run of each kind."""
    if room() < IDLE + SLOW:
        raise Broken(f"too few file descriptors for {IDLE} connections: ulimit -n")
    task = progress.add_task("senders beside hostile ones", total=len(NAMES))
    port = free_port()
    path = stack.config(
        {
            "redis": {"url": server.url, "namespace": "hostile"},
            "ingest": {"listen": f"127.0.0.1:{port}"},
            "queue": {"max_depth": 10_000_000},
            "destinations": [{"name": "sink", "type": "discard"}],
        }
    )
    ingest = await stack.module("ingest", path, name="ingest-hostile")
    await ingest.event("redis_seen")
    runs = []
    for kind in NAMES:
        async with _crowd(kind, port) as crowd:
            seen = await load(f"127.0.0.1:{port}", stack.directory, seconds=seconds, pace=PACE)
            runs.append(
                Beside(kind, seen.p50, seen.p99, seen.refused, await _memory(ingest.pid), crowd.bombs)
            )
        progress.advance(task)
    await ingest.stop()
    return runs


@asynccontextmanager
async def _crowd(kind: str, port: int) -> AsyncIterator[Crowd]:
    """What there is of that kind, as soon as all of it is connected."""
    crowd = Crowd(port)
    tasks = [asyncio.create_task(work) for work in _works(crowd, kind)]
    try:
        crowd.await_all(len(tasks))
        await crowd.complete.wait()
        yield crowd
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        crowd.close()
    broken = [fault for fault in ended if not isinstance(fault, asyncio.CancelledError)]
    if broken:
        raise Broken(f"{len(broken)} hostile connections ended, such as by {broken[0]!r}")


def _works(crowd: Crowd, kind: str) -> Iterator[Coroutine[Any, Any, None]]:
    for encoding, body in (("gzip", gzip.compress(ZEROS)), ("zstd", _zstd(ZEROS))):
        if kind in (encoding, "all"):
            yield from (crowd.bomb(encoding, body) for _ in range(BOMBERS))
    if kind in ("slow", "all"):
        yield from (crowd.drip() for _ in range(SLOW))
    if kind in ("idle", "all"):
        yield from (crowd.idle() for _ in range(IDLE))


def _zstd(plain: bytes) -> bytes:
    """One that does not say at its beginning how large it is."""
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.content_size_flag: 0})
    return packer.compress(plain) + packer.flush()


async def _memory(pid: int) -> float:
    """MiB that a process has."""
    ps = await asyncio.create_subprocess_exec(
        "ps", "-o", "rss=", "-p", str(pid), stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await ps.communicate()
    return int(printed) / 1024

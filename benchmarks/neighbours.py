"""Does a destination suffer from the others? Its latency alone, and beside four that are broken.

One hangs, one answers 500, one 429 with Retry-After, one refuses connections. The fifth's end-to-end time is
from the alert's own time, set when it is posted, to its arrival. In turns, each with services started anew.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from statistics import median, quantiles
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec
from aiohttp import web
from msgspec import Struct
from rich.progress import Progress

from benchmarks.stack import Server, Stack, free_port

RATE = 300  # alerts a second
PATIENCE = 30.0  # seconds for the last alerts to arrive
LOOK = 0.02  # seconds between two looks
SETTLING = 1.0  # seconds of load before anything is measured
FAILING = ("hangs", "fails", "throttles", "refuses")


class Beside(Struct, frozen=True):
    """p99 of one pair of runs, ms."""

    alone: float
    crowded: float

    @property
    def good(self) -> bool:
        """Within 1.5 times, or 5 ms, of what it is alone."""
        return self.crowded <= max(1.5 * self.alone, self.alone + 5)


class Receiver:
    """All five destinations; `arrived` has when each alert came to the fifth, by host, seconds."""

    def __init__(self) -> None:
        self.arrived: dict[str, float] = {}
        self._runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.1)

    def url(self, path: str) -> str:
        """Where one of them is."""
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/{path}"

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1024).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        now = time.time()
        body = await request.read()
        match request.path:
            case "/hangs":
                await asyncio.sleep(3600)
            case "/fails":
                return web.Response(status=500)
            case "/throttles":
                return web.Response(status=429, headers={"Retry-After": "1"})
        self.arrived.setdefault(msgspec.json.decode(body)["data"]["host"], now)
        return web.Response()


async def beside(
    stack: Stack, server: Server, progress: Progress, rounds: int, seconds: float
) -> list[Beside]:
    """So many pairs of runs."""
    task = progress.add_task("a destination beside broken ones", total=2 * rounds)
    pairs: list[Beside] = []
    for number in range(rounds):
        p99: list[float] = []
        for failing in ((), FAILING):
            run = f"run-{number}-{len(failing)}"
            p99.append(await _measure(stack, server, run, failing, seconds))
            progress.advance(task)
        pairs.append(Beside(*p99))
    return pairs


def medians(pairs: Sequence[Beside]) -> tuple[float, float, bool]:
    """Medians alone and crowded, ms, and whether more than half of the pairs are good."""
    good = median(pair.good for pair in pairs) == 1
    return median(pair.alone for pair in pairs), median(pair.crowded for pair in pairs), good


async def _measure(stack: Stack, server: Server, run: str, failing: Sequence[str], seconds: float) -> float:
    async with Receiver() as receiver:
        port = free_port()
        path = stack.config(_config(server, receiver, run, port, failing))
        services = [await stack.module(name, path, name=f"{name}-{run}") for name in ("ingest", "dispatcher")]
        await services[0].event("redis_seen")
        await services[1].event("delivering")
        sent = await _post(f"http://127.0.0.1:{port}/v1/alerts", run, seconds)
        await _all_there(receiver, sent)
        for service in services:
            await service.kill()  # what the broken ones still have is not waited for
    times = [1000 * (receiver.arrived[host] - at) for host, at in sent.items()]
    return quantiles(times, n=100)[98]


def _config(
    server: Server, receiver: Receiver, run: str, port: int, failing: Sequence[str]
) -> dict[str, object]:
    def destination(name: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{free_port()}/" if name == "refuses" else receiver.url(name)
        return {
            "name": name,
            "type": "webhook",
            "url": url,
            "allow_private": True,
            "retry": {"preset": "page"},
        }

    return {
        "redis": {"url": server.url, "namespace": run},
        "ingest": {"listen": f"127.0.0.1:{port}"},
        "dispatcher": {"listen": f"127.0.0.1:{free_port()}"},
        "destinations": [destination(name) for name in ("fine", *failing)],
    }


async def _post(url: str, run: str, seconds: float) -> dict[str, float]:
    """Post at a steady rate; when each was sent, by host, without those of the first second."""
    sent: dict[str, float] = {}
    start = time.monotonic()
    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as posts:
        for number in range(int(RATE * (seconds + SETTLING))):
            await asyncio.sleep(start + number / RATE - time.monotonic())
            posts.create_task(_one(http, url, f"{run}-{number}", sent, number > RATE * SETTLING))
    return sent


async def _one(
    http: aiohttp.ClientSession, url: str, host: str, sent: dict[str, float], counts: bool
) -> None:
    now = time.time()
    if counts:
        sent[host] = now
    async with http.post(url, json={"host": host, "name": "disk-full", "severity": "critical"}) as answer:
        answer.raise_for_status()


async def _all_there(receiver: Receiver, sent: dict[str, float]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            if sent.keys() <= receiver.arrived.keys():
                return
            await asyncio.sleep(LOOK)

"""What a destination meets when it comes back: thousands of deliveries wait, and three replicas want to send.

Nobody listens at first; the gate closes, everything waits. Then a receiver listens and writes down when each
request came: how many before its first answer (the probe), and how many in each second from then on.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from types import TracebackType
from typing import Self

import aiohttp
import msgspec
from aiohttp import web
from msgspec import Struct
from redis.asyncio import Redis
from rich.progress import Progress

from benchmarks.stack import Broken, Process, Server, Stack, free_port
from common.snapshot import Snapshot, snapshot

NAMESPACE = "outage"
REPLICAS = 3
PART = 500  # alerts in one request
LOOK = 0.05  # seconds between two looks
PHASES = 20  # where a second may begin
PATIENCE = 120.0  # seconds for all to arrive


class Comeback(Struct, frozen=True):
    """`probes`: requests before the first answer was given; `steepest`: the largest ratio of one second's
    requests to those of the second before, wherever seconds begin; `fullest`: that of a tenth of a second to
    the mean of its second, 1 when there are no waves; `seconds` from the first to the last."""

    probes: int
    steepest: float
    fullest: float
    seconds: float
    requests: int
    unaccounted: int


class Receiver:
    """Answers 200 after a moment. `came` has the time of each request, seconds."""

    def __init__(self, port: int) -> None:
        self.came: list[float] = []
        self.ids: set[str] = set()
        self.answered_at = float("inf")  # when the first answer was given
        self._port = port
        self._runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=1024).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.came.append(time.monotonic())
        await request.read()
        await asyncio.sleep(0.01)
        self.ids.add(request.headers["webhook-id"])
        self.answered_at = min(self.answered_at, time.monotonic())
        return web.Response()


async def comeback(stack: Stack, server: Server, progress: Progress, alerts: int) -> Comeback:
    """One outage."""
    ingest, port = free_port(), free_port()
    path = stack.config(_config(server, ingest, port))
    services = [await stack.module("ingest", path, name="ingest-outage")]
    await services[0].event("redis_seen")
    for number in range(REPLICAS):
        services.append(await stack.module("dispatcher", path, name=f"dispatcher-outage-{number}"))
        await services[-1].event("delivering")
    redis = server.client()
    await _post(f"http://127.0.0.1:{ingest}/v1/alerts", alerts)
    await _closed(redis, services)
    task = progress.add_task("a destination comes back", total=alerts)
    async with Receiver(port) as receiver:
        async with asyncio.timeout(PATIENCE):
            while len(receiver.ids) < alerts:
                await asyncio.sleep(LOOK)
                progress.update(task, completed=len(receiver.ids))
            seen = await _empty(redis)
    await redis.aclose()
    for service in services:
        await service.stop()
    came = receiver.came
    probes = sum(at < receiver.answered_at for at in came)
    return Comeback(probes, steepest(came), fullest(came), came[-1] - came[0], len(came), seen.unaccounted)


def steepest(came: list[float]) -> float:
    """The largest ratio of a second's requests to those of the second before, for all phases of a second.

    The last second is not full, and the first ones begin before the first request: neither can be too steep.
    """
    worst = 0.0
    for phase in range(PHASES):
        start = came[0] - phase / PHASES
        bins = Counter(int(at - start) for at in came)
        worst = max([worst, *(bins[second + 1] / bins[second] for second in sorted(bins))])
    return worst


def fullest(came: list[float]) -> float:
    """How much a tenth of a second holds of what its tenth would be, where that is five or more."""
    tenths = Counter(int(10 * (at - came[0])) for at in came)
    seconds = Counter(int(at - came[0]) for at in came)
    del seconds[int(came[-1] - came[0])]  # it is not full
    shares = (count / seconds[tenth // 10] for tenth, count in tenths.items() if seconds[tenth // 10] >= 50)
    return 10 * max(shares, default=0.1)


def _config(server: Server, ingest: int, port: int) -> dict[str, object]:
    return {
        "redis": {"url": server.url, "namespace": NAMESPACE},
        "ingest": {"listen": f"127.0.0.1:{ingest}"},
        "dispatcher": {"listen": "127.0.0.1:0"},
        "destinations": [
            {
                "name": "back",
                "type": "webhook",
                "url": f"http://127.0.0.1:{port}/",
                "allow_private": True,
                "retry": {"preset": "page", "attempts": 20},
                "breaker": {"failures": 10, "open": "3s"},
            }
        ],
    }


async def _post(url: str, alerts: int) -> None:
    lines = [msgspec.json.encode({"host": f"web-{number}", "name": "outage"}) for number in range(alerts)]
    headers = {"Content-Type": "application/x-ndjson"}
    async with aiohttp.ClientSession() as http:
        for start in range(0, alerts, PART):
            body = b"\n".join(lines[start : start + PART])
            async with http.post(url, data=body, headers=headers) as answer:
                answer.raise_for_status()


async def _closed(redis: Redis, services: list[Process]) -> Snapshot:
    """Once the gate is closed and nothing is in flight any more."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        seen = await snapshot(redis, NAMESPACE, "back")
        if seen.gate.get("state") == "breaker" and not seen.in_flight:
            return seen
        await asyncio.sleep(LOOK)
    raise Broken(f"the gate did not close\n{services[1].last_words()}")


async def _empty(redis: Redis) -> Snapshot:
    while True:
        seen = await snapshot(redis, NAMESPACE, "back")
        if not seen.depth:
            return seen
        await asyncio.sleep(LOOK)

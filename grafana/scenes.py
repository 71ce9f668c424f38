"""Scenes for the pictures: services, three destinations, a receiver, a Prometheus, and what happens to them.

`staged` begins one, a function of SCENES drives it; its docstring is the picture's title. It waits for what
is to be seen, or for as long as it should be.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.fleet import Running
from tests.support.processes import Processes
from tests.support.prometheus import Prometheus, hasty, started
from tests.support.receiver import Answer, Receiver, Request
from tests.support.servers import Server

NAMES = ("pager", "chat", "archive")
RATE = 0.05  # seconds between two alerts, each of which goes to all destinations


@dataclass
class Scene:
    """What a scene has at hand; `statuses` is what the receiver answers, by destination."""

    title: str
    prometheus: Prometheus
    processes: Processes
    config: Path
    statuses: dict[str, Callable[[], int]]
    noticed_at: float | None = None  # when somebody looks at the overview, seconds since the epoch

    async def noticed(self) -> None:
        """Somebody looks now."""
        self.noticed_at = await self.prometheus.value("time()")

    async def redispatch(self, *words: str) -> None:
        """A command that succeeds."""
        process = await self.processes.redispatch(*words, config=self.config)
        assert await process.wait_exit(60) == 0, process.text


@asynccontextmanager
async def staged(directory: Path, http: aiohttp.ClientSession, title: str) -> AsyncIterator[Scene]:
    """Everything runs, alerts come in, and Prometheus has seen it."""
    server = Server("valkey", directory / "server", aof=True).start()
    statuses: dict[str, Callable[[], int]] = {name: lambda: 200 for name in NAMES}

    def answer(request: Request) -> Answer:
        return Answer(statuses[request.path.strip("/")]())

    async with Receiver() as receiver, Processes(directory, None) as processes:
        receiver.default = answer
        config = processes.config(_configuration(server.url, receiver.url))
        first, second, third = [
            _running(await process.wait_line('"event":"listening"'), http, process)
            for process in (
                await processes.ingest(config),
                await processes.dispatcher(config),
                await processes.dispatcher(config),
            )
        ]
        prometheus = await started(
            processes, http, rules=hasty(processes), ingest=[first], dispatcher=[second, third]
        )
        load = asyncio.create_task(_load(first, http))
        await prometheus.wait("min(rate(redispatch_deliveries_total{result='delivered'}[5s])) > 1")
        await prometheus.wait("count(redispatch_canary_last_success_timestamp_seconds > 0) >= 3")
        try:
            yield Scene(title.strip().rstrip("."), prometheus, processes, config, statuses)
        finally:
            load.cancel()
            await asyncio.gather(load, return_exceptions=True)
            server.kill()


def _configuration(redis: str, receiver: str) -> dict[str, Any]:
    retry = {"preset": "page", "base": "1s", "cap": "4s"}
    settings = {"retry": retry, "allow_private": True, "breaker": {"failures": 100}}
    return {
        "redis": {"url": redis},
        "ingest": {"listen": "127.0.0.1:0"},
        "dispatcher": {"listen": "127.0.0.1:0"},
        "queue": {"max_depth": 1000, "max_dead": 1000},
        "canary": {"every": "1s"},
        "destinations": [
            {"name": name, "type": "webhook", "url": receiver + name, **settings} for name in NAMES
        ],
        "routes": [{"to": list(NAMES)}],
    }


def _running(line: str, http: aiohttp.ClientSession, process: Any) -> Running:
    return Running(process, f"http://{json.loads(line)['address']}", http)


async def _load(ingest: Running, http: aiohttp.ClientSession) -> None:
    n = 0
    while True:
        n += 1
        async with http.post(f"{ingest.url}/v1/alerts", json={"host": f"host-{n}", "name": "disk"}) as answer:
            assert answer.status in (201, 503), await answer.text()
        await asyncio.sleep(RATE)


async def storm(scene: Scene) -> None:
    """A retry storm: for half a minute most of what goes to the pager fails, then it recovers."""
    scene.statuses["pager"] = lambda: 500 if random.random() < 0.85 else 200
    await asyncio.sleep(30)
    await scene.noticed()
    scene.statuses["pager"] = lambda: 200
    await scene.prometheus.wait('max(redispatch_queue_depth{destination="pager"}) < 5', 60)
    await asyncio.sleep(8)


async def gate(scene: Scene) -> None:
    """A closed gate: chat answers 410, until somebody corrects that and resumes."""
    scene.statuses["chat"] = lambda: 410
    await asyncio.sleep(25)
    await scene.noticed()
    scene.statuses["chat"] = lambda: 200
    await asyncio.sleep(2)
    await scene.redispatch("resume", "chat")
    await scene.prometheus.wait('max(redispatch_queue_depth{destination="chat"}) < 5', 60)
    await asyncio.sleep(8)


async def replay(scene: Scene) -> None:
    """A replay: the archive refuses what it gets for a while; later its dead letters are sent again."""
    scene.statuses["archive"] = lambda: 400
    await asyncio.sleep(15)
    scene.statuses["archive"] = lambda: 200
    await asyncio.sleep(10)
    await scene.redispatch("dead", "replay", "--destination", "archive", "--rate", "15", "--yes")
    await scene.prometheus.wait('max(redispatch_dead_letters{destination="archive"}) == 0', 60)
    await asyncio.sleep(8)


SCENES: dict[str, tuple[Callable[[Scene], Awaitable[None]], tuple[str, ...]]] = {
    "storm": (storm, ("overview", "destination", "ingest", "redis")),
    "gate": (gate, ("overview", "destination")),
    "replay": (replay, ("overview", "destination")),
}

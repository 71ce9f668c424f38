"""What looking at a large backlog costs `/metrics` of a dispatcher, and Redis, while all waits behind a gate.

Takes a Stack with a server, which is emptied before and after; returns times of `/metrics` and what the
server worked, by its own log of commands. Raises Broken when the figures are not those of the backlog.
"""

from __future__ import annotations

import asyncio
import time
from statistics import median

import aiohttp
from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families
from redis.asyncio import Redis
from rich.progress import Progress

from benchmarks.fill import NAMESPACE, fill
from benchmarks.stack import Broken, Server, Stack, free_port
from common import keys
from common.scripts import Script

EVERY = 0.1  # seconds between two looks, a hundred times as often as Prometheus
MEASURED = 1.0  # seconds between two snapshots of the dispatcher
SCRAPE, WORK = 20, 1  # targets, ms
SNAPSHOT = Script("common", "snapshot")
OURS = (b"CONFIG", b"SLOWLOG")  # what is asked from here


class Looked(Struct, frozen=True):
    """Of `/metrics`: median and 99th percentile, ms; of the server: ms of work per second, for the figures
    and for all else that the dispatcher asks while nothing may be sent."""

    alerts: int
    median: float
    p99: float
    figures: float
    all_else: float


async def look(stack: Stack, server: Server, progress: Progress, alerts: int, seconds: float) -> Looked:
    """Fill a queue, and look at it for so long."""
    redis = server.client()
    await redis.flushall()
    await redis.hset(keys.Destination(NAMESPACE, "sink").gate, mapping={"state": "paused"})
    await fill(redis, server, progress, alerts)
    listen = f"127.0.0.1:{free_port()}"
    content = {
        "redis": {"url": server.url, "namespace": NAMESPACE},
        "dispatcher": {"listen": listen},
        "queue": {"max_depth": 10_000_000},
        "destinations": [{"name": "sink", "type": "discard"}],
    }
    dispatcher = await stack.module("dispatcher", stack.config(content))
    await dispatcher.event("delivering")
    async with aiohttp.ClientSession() as http:
        await asyncio.sleep(3 * MEASURED)
        if await _depth(http, listen) != alerts:
            raise Broken(f"the backlog is not what /metrics tells\n{dispatcher.last_words()}")
        await _log_commands(redis)
        began = time.perf_counter()
        took: list[float] = []
        while time.perf_counter() - began < seconds:
            start = time.perf_counter()
            await _scrape(http, listen)
            took.append(1000 * (time.perf_counter() - start))
            await asyncio.sleep(EVERY)
        elapsed = time.perf_counter() - began
        figures, all_else = (worked / elapsed for worked in await _worked(redis))
    await dispatcher.stop()
    await redis.flushall()
    await redis.aclose()
    took.sort()
    return Looked(alerts, median(took), took[len(took) * 99 // 100], figures, all_else)


async def _depth(http: aiohttp.ClientSession, listen: str) -> float:
    families = text_string_to_metric_families(await _scrape(http, listen))
    return sum(family.samples[0].value for family in families if family.name == "redispatch_queue_depth")


async def _scrape(http: aiohttp.ClientSession, listen: str) -> str:
    async with http.get(f"http://{listen}/metrics") as answer:
        return await answer.text()


async def _log_commands(redis: Redis) -> None:
    await redis.config_set("slowlog-log-slower-than", 0)
    await redis.config_set("slowlog-max-len", 100_000)
    await redis.execute_command("SLOWLOG", "RESET")


async def _worked(redis: Redis) -> tuple[float, float]:
    """Milliseconds that the server was busy with the figures since then, and with all else that was asked."""
    await redis.config_set("slowlog-log-slower-than", -1)
    figures = all_else = 0
    for _, _, micros, words, *_ in await redis.execute_command("SLOWLOG", "GET", -1):
        if words[0] == b"SMEMBERS" or words[:2] == [b"EVALSHA", SNAPSHOT.digest.encode()]:
            figures += micros
        elif words[0] not in OURS:
            all_else += micros
    return figures / 1000, all_else / 1000

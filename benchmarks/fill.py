"""A full queue: appends alerts as ingest does, to one destination.

Takes a client and the server it is of; returns when all are queued.
"""

from __future__ import annotations

import time

from msgspec.structs import replace
from redis.asyncio import Redis
from rich.progress import Progress

from benchmarks.stack import Server
from common.alert import Alert
from common.settings import Destination, Queue, Settings
from ingest.append import Appender
from ingest.event import Event
from ingest.route import Router

NAMESPACE = "bench"
CHUNK = 2000  # alerts appended at once
ROOMY = Queue(max_depth=10_000_000)


async def fill(redis: Redis, server: Server, progress: Progress, alerts: int, queue: Queue = ROOMY) -> None:
    """Append so many alerts for `sink`."""
    settings = Settings(
        redis=replace(server.section, namespace=NAMESPACE),
        queue=queue,
        destinations=[Destination(name="sink", type="discard")],
    )
    appender = Appender(redis, settings, Router(settings), cluster=False)
    task = progress.add_task("filling the queue", total=alerts)
    now = time.time_ns() // 1_000_000
    for start in range(0, alerts, CHUNK):
        numbers = range(start, min(start + CHUNK, alerts))
        await appender.submit([Event(alert(number, now)) for number in numbers])
        progress.advance(task, len(numbers))
    await appender.close()


def alert(number: int, now: int) -> Alert:
    """One of many; `now` in ms."""
    host = f"web-{number}"
    return Alert(
        incident=f"{host}:disk-full",
        host=host,
        name="disk-full",
        severity="critical",
        summary="the disk of this machine is full",
        timestamp=now,
    )

"""Senders that never give up: each alert is posted until it is acknowledged, some once more after that.

Takes the addresses of ingest, how many alerts and in what time; keeps the acknowledged keys, what was met
on the way, and what should not have been answered. Raises nothing that a server or a network does.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import aiohttp
from msgspec import Struct

SENDERS = 50
REPEATED = 0.02  # of the acknowledged alerts
PAUSE = 0.4  # seconds at most before an alert is tried again
PATIENCE = aiohttp.ClientTimeout(10)


class Told(Struct, frozen=True):
    """An acknowledgement: the alert's key, and `queued` or `duplicate`."""

    key: str
    status: str


class Poster:
    """`met` counts by kind what was a reason to try again; `wrong` tells of answers that must not be."""

    def __init__(self, urls: Sequence[str], alerts: int, seconds: float, seed: int) -> None:
        self.acknowledged: dict[str, int] = {}  # key -> alert's number
        self.met: Counter[str] = Counter()
        self.repeats = 0
        self.wrong: list[str] = []
        self._urls = urls
        self._alerts = alerts
        self._seconds = seconds
        self._chance = random.Random(seed)
        self._next = 0
        self._began = int(time.time() * 1000)

    async def run(self) -> None:
        """Until every alert is acknowledged."""
        start = time.monotonic()
        connector = aiohttp.TCPConnector(limit=2 * SENDERS)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=PATIENCE) as http,
            asyncio.TaskGroup() as senders,
        ):
            for _ in range(SENDERS):
                senders.create_task(self._send(http, start))

    async def _send(self, http: aiohttp.ClientSession, start: float) -> None:
        while self._next < self._alerts:
            number, self._next = self._next, self._next + 1
            await asyncio.sleep(start + number * self._seconds / self._alerts - time.monotonic())
            told = await self._until_acknowledged(http, number)
            if told is None:
                continue
            other = self.acknowledged.setdefault(told.key, number)
            if other != number:
                self.wrong.append(f"alerts {number} and {other} were given one key: {told.key}")
            if self._chance.random() < REPEATED:
                await self._repeat(http)

    async def _repeat(self, http: aiohttp.ClientSession) -> None:
        """Post again what was acknowledged at some time."""
        self.repeats += 1
        key, number = self._chance.choice(list(self.acknowledged.items()))
        told = await self._until_acknowledged(http, number)
        if told is not None and told != Told(key, "duplicate"):
            self.wrong.append(f"{key} was acknowledged, and its repeat was {told.status} as {told.key}")

    async def _until_acknowledged(self, http: aiohttp.ClientSession, number: int) -> Told | None:
        """What ingest made of it; None when it won't have it."""
        alert = {"host": f"host-{number}", "name": "chaos", "timestamp": self._began + number}
        tries = number
        while True:
            url = self._urls[tries % len(self._urls)]
            tries += 1
            try:
                async with http.post(f"{url}/v1/alerts", json=alert) as answer:
                    told: dict[str, Any] = await answer.json(content_type=None)
                    status = answer.status
            except (aiohttp.ClientError, TimeoutError) as fault:
                self.met[type(fault).__name__] += 1
            else:
                if status in (200, 201):
                    return Told(told["key"], told["status"])
                if status != 503:
                    self.wrong.append(f"alert {number} was answered {status}: {told}")
                    return None
                self.met["503"] += 1
            await asyncio.sleep(self._chance.random() * PAUSE)

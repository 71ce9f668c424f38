"""A steady load for the trials of failovers: senders that never give up, and a receiver that counts.

Takes addresses and a rate; keeps when each alert was acknowledged and how often it arrived. Each alert goes
to one of DESTINATIONS, in turn. Raises nothing that a server or a network does.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from types import TracebackType
from typing import Any, Self, cast

import aiohttp
from msgspec import Struct

DESTINATIONS = ("one", "two", "three")
PART = 10  # alerts in one request
SENDERS = 20
PAUSE = 0.1  # seconds before a request is made again
PATIENCE = aiohttp.ClientTimeout(10)
_ID = re.compile(rb"\r\nwebhook-id:\s*(\S+)", re.IGNORECASE)
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)


class Told(Struct, frozen=True):
    """An acknowledgement: when (monotonic seconds), and the destination."""

    at: float
    destination: str


class Sender:
    """Posts until `stop` is set; then until all that was begun is acknowledged."""

    def __init__(self, url: str, rate: float) -> None:
        self.acknowledged: dict[str, Told] = {}
        self.refused = 0  # requests
        self.stop = asyncio.Event()
        self._url = url + "/v1/alerts"
        self._rate = rate
        self._next = 0

    async def run(self) -> None:
        """All senders."""
        began = time.monotonic()
        async with aiohttp.ClientSession(timeout=PATIENCE) as http, asyncio.TaskGroup() as tasks:
            for _ in range(SENDERS):
                tasks.create_task(self._send(http, began))

    async def _send(self, http: aiohttp.ClientSession, began: float) -> None:
        while not self.stop.is_set():
            number, self._next = self._next, self._next + 1
            await asyncio.sleep(began + number * PART / self._rate - time.monotonic())
            name = DESTINATIONS[number % len(DESTINATIONS)]
            keys = [f"id:anonymous:{number}:{place}" for place in range(PART)]
            body = [{"host": f"host-{number}-{place}", "name": name} for place in range(PART)]
            while not await self._posted(http, number, body):
                self.refused += 1
                await asyncio.sleep(PAUSE)
            now = Told(time.monotonic(), name)
            self.acknowledged |= dict.fromkeys(keys, now)

    async def _posted(self, http: aiohttp.ClientSession, number: int, body: list[dict[str, str]]) -> bool:
        try:
            async with http.post(self._url, json=body, headers={"Idempotency-Key": str(number)}) as answer:
                await answer.read()
                return answer.status in (200, 201)
        except (aiohttp.ClientError, TimeoutError):
            return False


class Receiver(asyncio.Protocol):
    """One connection of a receiver that answers 204."""

    def __init__(self, came: Counter[str], at: dict[str, float]) -> None:
        self._came, self._at = came, at
        self._unread = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep it for the answers."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer each request that is complete."""
        self._unread += data
        while (end := self._unread.find(b"\r\n\r\n")) >= 0:
            head = self._unread[:end]
            length, key = _LENGTH.search(head), _ID.search(head)
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self._unread) < size:
                return
            self._unread = self._unread[size:]
            if key is not None:
                name = key[1].decode()
                self._came[name] += 1
                self._at.setdefault(name, time.monotonic())
            self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")


class Arrivals:
    """`async with Arrivals() as receiver`: how often each key came, and when first."""

    def __init__(self) -> None:
        self.came: Counter[str] = Counter()
        self.at: dict[str, float] = {}
        self.url = ""
        self._server: Any = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Receiver(self.came, self.at), "127.0.0.1", 0, backlog=1024
        )
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

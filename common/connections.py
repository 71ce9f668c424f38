"""How many connections a server has at once: fewer than there are file descriptors, and idle ones give way.

`Protocols` is aiohttp's low-level server that keeps count; `unreadable` answers what is no HTTP. Where one
connection too many comes, the one that has been idle for longest is closed, so that nobody keeps others out
by doing nothing.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from common.log import Log
from common.unreadable import Refuse, Refusing

WANTED = 65_536  # descriptors; each process that is started looks at all there may be
RESERVE = 64  # descriptors for the way to Redis, files and what a library may want
FEW = 1000  # connections; below it a handful of scrapers and agents gets in each other's way
QUIET = 5.0  # seconds between two log lines

log = Log("http")


def room() -> int:
    """How many connections fit, after the limit of descriptors was raised as far as we may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    most = max(1, (WANTED if soft == resource.RLIM_INFINITY else soft) - RESERVE)
    if most < FEW:
        log.warning("few_connections", most=most)
    return most


class Protocols(web.Server):
    """Connections that `handle` answers, at most `most` of them."""

    def __init__(
        self,
        handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        unreadable: Refuse,
        most: int,
        **options: Any,
    ) -> None:
        super().__init__(self._answer)
        self._handle = handle
        self._unreadable = unreadable
        self._options = options
        self._most = most
        self._count = 0
        self._idle: dict[web.RequestHandler, None] = {}  # the longest idle first
        self._told = float("-inf")

    def __call__(self) -> Refusing:
        """The protocol of a connection that is about to be made."""
        return Refusing(self, self._unreadable, loop=asyncio.get_running_loop(), **self._options)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """One more, and perhaps another one less."""
        super().connection_made(handler, transport)
        self._count += 1
        self._idle[handler] = None
        if self._count > self._most:
            self._make_room()

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """One less."""
        super().connection_lost(handler, exc)
        self._count -= 1
        self._idle.pop(handler, None)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        handler = request.protocol
        self._idle.pop(handler, None)
        try:
            return await self._handle(request)
        finally:
            if request.transport is not None:
                self._idle[handler] = None

    def _make_room(self) -> None:
        """The newest has just come, and goes itself when all others are at work."""
        oldest = next(iter(self._idle))
        del self._idle[oldest]
        loop = asyncio.get_running_loop()
        loop.call_soon(oldest.force_close)  # one that is only being made can't be closed yet
        now = loop.time()
        if now - self._told >= QUIET:
            self._told = now
            log.warning("connections_full", most=self._most)

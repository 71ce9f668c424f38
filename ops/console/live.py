"""Server-sent events: the board, then what changes of it, to a bounded number of viewers.

Takes a Watch; answers `GET /live`. A stream ends when the service does, when its guest may not look any more,
and when a viewer does not read. Raises Problem (503) for one viewer too many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from common.http import Problem, Request, encode
from ops.console.board import Board
from ops.console.watch import Watch

MOST = 64  # viewers
HEARTBEAT = 15.0  # seconds without news after which a line says that we are there
PATIENCE = 10.0  # seconds until a viewer that reads nothing is let go


class Live:
    """All viewers of one process."""

    def __init__(self, watch: Watch, changed: Callable[[int], None]) -> None:
        self._watch = watch
        self._told = changed  # hears how many there are
        self._streams: set[asyncio.Task[None]] = set()

    async def view(self, request: Request, allowed: Callable[[], bool]) -> web.StreamResponse:
        """One stream, until it ends."""
        if len(self._streams) >= MOST:
            raise Problem(503, f"{MOST} pages are being watched already", headers={"Retry-After": "30"})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.headers["X-Accel-Buffering"] = "no"  # so that a proxy passes each event on at once
        stream = asyncio.create_task(self._stream(request, response, allowed))
        self._streams.add(stream)
        self._told(len(self._streams))
        try:
            await asyncio.wait({stream})
        finally:
            stream.cancel()
            self._streams.discard(stream)
            self._told(len(self._streams))
        response.force_close()
        return response

    def close(self) -> None:
        """All of them end now."""
        for stream in self._streams:
            stream.cancel()

    async def _stream(
        self, request: Request, response: web.StreamResponse, allowed: Callable[[], bool]
    ) -> None:
        shown: Board = {}
        loop, quiet_since = asyncio.get_running_loop(), 0.0
        try:
            await response.prepare(request)
            await response.write(b"retry: 2000\n\n")
            while allowed():
                board, now = self._watch.board, loop.time()
                news = {name: text for name, text in board.items() if shown.get(name) != text}
                if news or now - quiet_since >= HEARTBEAT:
                    async with asyncio.timeout(PATIENCE):
                        await response.write(b"data: %b\n\n" % encode(news) if news else b":\n\n")
                    quiet_since = now
                shown = board
                await self._watch.next(HEARTBEAT)
        except (ConnectionError, TimeoutError):
            return  # it is gone, or does not read

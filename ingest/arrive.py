"""A request's body off its connection: bounded in size, in time, and in what all of them together hold.

Takes a request whose head is known to be fine, returns its bytes. Raises Problem: 413, 408, 417, 400 for what
breaks off, 503 when too much is held. `receive` says when it is done with a body.
"""

from __future__ import annotations

import asyncio

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from common.http import SMALL, Problem, Request

PATIENCE = 10.0  # seconds for a body to arrive
HELD = 8  # times the largest body: what all that arrive or wait to be read may hold


class Arrivals:
    """Those of one configuration."""

    def __init__(self, max_body: int, patience: float = PATIENCE) -> None:
        self._max_body = max_body
        self._most = HELD * max_body
        self._patience = patience
        self._held = 0  # bytes

    @property
    def held(self) -> int:
        """Bytes that are here or on their way."""
        return self._held

    async def body(self, request: Request) -> bytes:
        """All of it; counted as held until `done`."""
        content = request.content
        if content.is_eof():
            body = content.read_nowait()
            if len(body) > self._max_body:
                raise self._too_large()
            self._held += len(body)
            return body
        return await self._arriving(request)

    def done(self, body: bytes) -> None:
        """It is not needed any more."""
        self._held -= len(body)

    async def _arriving(self, request: Request) -> bytes:
        """One that is not here yet."""
        if (request.content_length or 0) > self._max_body:
            raise self._too_large()
        _go_on(request)
        body = bytearray()
        try:
            async with asyncio.timeout(self._patience):
                while not request.content.at_eof():
                    self._add(body, await request.content.readany())
        except TimeoutError:
            self._held -= len(body)
            raise Problem(408, f"the body did not arrive within {self._patience:g} s") from None
        except (HttpProcessingError, web.RequestPayloadError, ConnectionError) as fault:
            self._held -= len(body)
            raise Problem(400, "the body broke off or is framed wrongly") from fault
        except BaseException:  # refused, or the service ends
            self._held -= len(body)
            raise
        return bytes(body)

    def _add(self, body: bytearray, piece: bytes) -> None:
        body += piece
        self._held += len(piece)
        if len(body) > self._max_body:
            raise self._too_large()
        if self._held > self._most and len(body) > SMALL:  # small ones are no reason, and get through
            raise Problem(503, "too many large bodies at once", headers={"Retry-After": "1"})

    def _too_large(self) -> Problem:
        return Problem(413, f"the body is larger than {self._max_body} bytes (ingest.max_body)")


def _go_on(request: Request) -> None:
    """Answer `Expect: 100-continue`, which senders of larger bodies wait for."""
    expected = request.headers.getall(hdrs.EXPECT, ())
    if not expected:
        return
    if any(value.lower() != "100-continue" for value in expected):
        raise Problem(417, "only 100-continue can be expected")
    if request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

"""A sentinel that says what a test wants it to, on a free loopback port.

`await Says().start()`; `primary` and `epoch` are what it answers, or `raw` if that is set; they may change at
any time.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

from common.units import Address


class Says:
    """Answers every command with a primary, `NOAUTH`, or nothing at all."""

    def __init__(self, primary: Address | None = None, epoch: int = 1) -> None:
        self.primary = primary  # None: it knows nobody of that name
        self.epoch = epoch
        self.raw = b""
        self.silent = False
        self.asked = 0
        self.at = Address("127.0.0.1", 0)
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.StreamWriter] = set()

    async def start(self) -> Self:
        """Listen."""
        self._server = await asyncio.start_server(self._answer, self.at.host, 0)
        self.at = Address(self.at.host, self._server.sockets[0].getsockname()[1])
        return self

    async def close(self) -> None:
        """Stop listening, and hang up."""
        if self._server is not None:
            self._server.close()
        for link in self._links:
            link.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._links.add(writer)
        with suppress(OSError):
            while await reader.read(4096):
                self.asked += 1
                if not self.silent:
                    writer.write(self._told())
        self._links.discard(writer)
        writer.close()

    def _told(self) -> bytes:
        if self.raw:
            return self.raw
        if self.primary is None:
            return b"-ERR No such master with that name\r\n"
        words = ["ip", self.primary.host, "port", str(self.primary.port), "config-epoch", str(self.epoch)]
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words)

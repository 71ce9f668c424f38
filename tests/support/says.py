"""A sentinel that says what a test wants it to, on a free loopback port.

`await Says().start()`; `primary`, `epoch` and `flags` are what it answers, or `raw` if that is set; they may
change at any time.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

from common.units import Address
from tests.support.listener import Listener


class Says:
    """Answers every command with a primary, `NOAUTH`, or nothing at all."""

    def __init__(self, primary: Address | None = None, epoch: int = 1) -> None:
        self.primary = primary  # None: it knows nobody of that name
        self.epoch = epoch
        self.flags = "master"
        self.raw = b""
        self.silent = False
        self.asked = 0
        self.at = Address("127.0.0.1", 0)
        self._listener = Listener(self._answer)

    async def start(self) -> Self:
        """Listen."""
        await self._listener.start()
        self.at = Address(self.at.host, self._listener.port)
        return self

    async def close(self) -> None:
        """Stop listening, and hang up."""
        await self._listener.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while await reader.read(4096):
                self.asked += 1
                if not self.silent:
                    writer.write(self._told())

    def _told(self) -> bytes:
        if self.raw:
            return self.raw
        if self.primary is None:
            return b"-ERR No such master with that name\r\n"
        words = ["ip", self.primary.host, "port", str(self.primary.port)]
        words += ["flags", self.flags, "config-epoch", str(self.epoch)]
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words)

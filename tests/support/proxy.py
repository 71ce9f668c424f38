"""A TCP proxy between a client and a server that cuts, freezes and loses replies.

`await Proxy(host, port).start()` listens on a free loopback port. What was lost can be waited for, so that
a test knows that the server did the command whose reply never came back.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from tests.support.listener import Listener


class Proxy:
    """Passes everything until told otherwise."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = Listener(self._accept)
        self._links: set[asyncio.StreamWriter] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._refusing = False
        self._markers: list[bytes] = []
        self._budget: int | None = None
        self._changed = asyncio.Condition()
        self.port = 0
        self.connections = 0
        self.lost = 0

    @property
    def url(self) -> str:
        """For a client of the server behind."""
        return f"redis://127.0.0.1:{self.port}/0"

    async def start(self) -> Self:
        """Listen."""
        self.port = (await self._listener.start()).port
        return self

    async def close(self) -> None:
        """Stop listening and break what is connected."""
        await self._listener.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def cut(self) -> None:
        """Break every connection; new ones are welcome."""
        for link in self._links:
            link.transport.abort()

    def refuse(self, refusing: bool = True) -> None:
        """Break every connection, and new ones at once, until `refuse(False)`."""
        self._refusing = refusing
        if refusing:
            self.cut()

    def freeze(self) -> None:
        """Pass nothing on in either direction; connections stay."""
        self._open.clear()

    def thaw(self) -> None:
        """Pass on what was held back, and everything from now on."""
        self._open.set()

    def lose_reply(self, marker: bytes) -> None:
        """The next command that has `marker` in it reaches the server; its reply does not come back.

        The connection breaks when the server has answered. Each call is good for one loss.
        """
        self._markers.append(marker)

    def break_after(self, count: int) -> None:
        """Pass `count` more bytes of replies, on whatever connection, and break that connection then."""
        self._budget = count

    async def wait_lost(self, count: int = 1, deadline: float = 45.0) -> None:
        """Until so many replies were lost. Raises TimeoutError after `deadline` seconds."""
        async with asyncio.timeout(deadline), self._changed:
            await self._changed.wait_for(lambda: self.lost >= count)

    async def wait_connections(self, count: int, deadline: float = 45.0) -> None:
        """Until so many connections were made since the start. Raises TimeoutError."""
        async with asyncio.timeout(deadline), self._changed:
            await self._changed.wait_for(lambda: self.connections >= count)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await self._tell()
        if not self._refusing:
            await _Link(self, reader, writer).run(*self._target)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _takes(self, tail: bytes, chunk: bytes) -> bool:
        """Whether a marker's last byte is in this chunk; uses the marker up."""
        for marker in self._markers:
            if marker in tail[max(0, len(tail) - len(marker) + 1) :] + chunk:
                self._markers.remove(marker)
                return True
        return False

    def _allowed(self, chunk: bytes) -> bytes:
        """As much of a reply as may pass; shorter than `chunk` when the connection has to break."""
        if self._budget is None:
            return chunk
        passed = chunk[: self._budget]
        self._budget = None if len(passed) < len(chunk) else self._budget - len(passed)
        return passed

    async def _lose(self) -> None:
        self.lost += 1
        await self._tell()


class _Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._deaf = False

    async def run(self, host: str, port: int) -> None:
        """Until either side hangs up or the proxy breaks it."""
        try:
            reader, writer = await asyncio.open_connection(host, port)
        except OSError:  # the server is away: so is the client's connection
            return
        ends = {self._writer, writer}
        self._proxy._links |= ends
        forth = asyncio.create_task(self._requests(writer))
        back = asyncio.create_task(self._replies(reader))
        try:
            await asyncio.wait({forth, back}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._proxy._links -= ends
            for end in ends:
                end.transport.abort()
            forth.cancel()
            back.cancel()
            await asyncio.gather(forth, back, return_exceptions=True)

    async def _requests(self, writer: asyncio.StreamWriter) -> None:
        tail = b""
        while chunk := await self._reader.read(65536):
            await self._proxy._open.wait()
            self._deaf = self._deaf or self._proxy._takes(tail, chunk)
            tail = chunk[-256:]  # a marker may be cut in two
            writer.write(chunk)
            await writer.drain()

    async def _replies(self, reader: asyncio.StreamReader) -> None:
        while chunk := await reader.read(65536):
            await self._proxy._open.wait()
            passed = b"" if self._deaf else self._proxy._allowed(chunk)
            self._writer.write(passed)
            await self._writer.drain()
            if len(passed) < len(chunk):
                await self._proxy._lose()
                return

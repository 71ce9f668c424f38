"""Raw HTTP on loopback. A server for what a decent one never does: it hands each request to a handler that
writes bytes, hangs, or breaks the connection as it likes. A client for the same."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.support.listener import Listener


class RawRequest(NamedTuple):
    """One request; `connection` and `number` (on that connection) count from 1."""

    connection: int
    number: int
    head: bytes
    body: bytes


Handler = Callable[[RawRequest, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class RawServer:
    """`async with RawServer(handler) as server`; connections and requests are counted."""

    def __init__(self, handler: Handler) -> None:
        self.connections = 0
        self.requests: list[RawRequest] = []
        self.port = 0
        self._handler = handler
        self._listener = Listener(self._serve)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}/hook"

    async def __aenter__(self) -> Self:
        self.port = (await self._listener.start()).port
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection, number = self.connections, 0
        try:
            while not writer.is_closing():
                number += 1
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head))
                self.requests.append(RawRequest(connection, number, head, body))
                await self._handler(self.requests[-1], writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def answering(raw: bytes) -> Handler:
    """A handler that answers every request with these bytes."""

    async def handle(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()

    return handle


class Reply(NamedTuple):
    """An answer, read from the wire; headers by their names as they were sent."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        """Its body."""
        return json.loads(self.raw)


class Wire:
    """A client's connection on which bytes are what they are: `async with Wire("127.0.0.1:80") as wire`."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        self._address = address
        self._tls = tls
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        host, _, port = self._address.rpartition(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port), ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.transport.abort()
        with suppress(OSError):  # how it broke is told where it was read
            await self.writer.wait_closed()

    def send(self, *parts: bytes) -> None:
        """Write them at once."""
        self.writer.write(b"".join(parts))

    async def reply(self) -> Reply:
        """The next answer."""
        async with asyncio.timeout(30):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in head[1:] if line)
            raw = await self.reader.readexactly(int(headers.get("Content-Length", 0)))
        return Reply(int(head[0].split()[1]), headers, raw)

    async def rest(self) -> bytes:
        """What comes until the server ends the connection, or breaks it."""
        gathered = bytearray()
        async with asyncio.timeout(30):
            try:
                while part := await self.reader.read(65_536):
                    gathered += part
            except ConnectionError:
                pass  # broken is an end, too
        return bytes(gathered)

    async def closed(self) -> bool:
        """Whether the server ends the connection, with nothing before."""
        return await self.rest() == b""

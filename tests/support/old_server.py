"""A server that says it is some version of Redis and knows nothing else: for what happens below the floor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.listener import Listener


@asynccontextmanager
async def claiming(version: str) -> AsyncIterator[str]:
    """The URL of a server of that version, on a free loopback port."""
    info = f"# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\naof_enabled:1\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while command := await _command(reader):
            asked = command[0].upper() == b"INFO"
            writer.write(f"${len(info)}\r\n{info}\r\n".encode() if asked else b"+OK\r\n")

    async with Listener(serve) as listener:
        yield f"redis://127.0.0.1:{listener.port}/0"


async def _command(reader: asyncio.StreamReader) -> list[bytes]:
    """The next one, [] at the end."""
    head = await reader.readline()
    words = []
    for _ in range(int(head[1:] or 0)):
        length = int((await reader.readline())[1:])
        words.append((await reader.readexactly(length + 2))[:-2])
    return words

"""A receiver that takes every request and does next to nothing, so that it is not what is measured.

`python -m benchmarks.sink PORT` answers `204` until it is told to stop, and a GET with `[taken, cpu]`: how
many it took, and the seconds of CPU it has used. Understands requests with a Content-Length, as webhooks are.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from typing import cast

import uvloop

from common import log

_TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"
_LENGTH = b"\r\ncontent-length:"
_END = b"\r\n\r\n"


class Sink(asyncio.Protocol):
    """One connection; `taken` counts for all."""

    taken = 0

    def __init__(self) -> None:
        self._unread = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep it for the answers."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer each request that is complete."""
        self._unread += data
        while (size := _size(self._unread)) is not None and size <= len(self._unread):
            self._transport.write(self._answer(self._unread.startswith(b"GET ")))
            self._unread = self._unread[size:]

    def _answer(self, asked: bool) -> bytes:
        if asked:
            return _told()
        Sink.taken += 1
        return _TAKEN


def _told() -> bytes:
    text = f"[{Sink.taken}, {time.process_time()}]".encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)


def _size(data: bytes) -> int | None:
    """Bytes of the request that `data` begins with; None while its head is not complete."""
    end = data.find(_END)
    if end < 0:
        return None
    head = data[:end].lower()
    at = head.find(_LENGTH)
    length = 0 if at < 0 else int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0])
    return end + len(_END) + length


async def _serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Sink, "127.0.0.1", port, backlog=1024)
    log.Log("sink").info("listening", address=f"127.0.0.1:{port}")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
    server.close()


if __name__ == "__main__":
    log.setup("sink")
    uvloop.run(_serve(int(sys.argv[1])))

"""Name lookups, each in a thread of its own, for the address guard.

Takes the place of an event loop in aiohttp's resolver. uvloop looks names up in four threads that all
destinations share and that are waited for at the end of the process: four names whose servers don't answer
would hold up every other destination, and the exit. Raises what `socket` raises.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class Lookups:
    """The part of an event loop that looks names up."""

    async def getaddrinfo(self, host: str, port: int, **options: int) -> list[Any]:
        """As `socket.getaddrinfo`."""
        return await _apart(lambda: socket.getaddrinfo(host, port, **options))

    async def getnameinfo(self, address: tuple[Any, ...], flags: int) -> tuple[str, str]:
        """As `socket.getnameinfo`."""
        return await _apart(lambda: socket.getnameinfo(address, flags))


async def _apart(look: Callable[[], T]) -> T:
    found: Future[T] = Future()
    found.set_running_or_notify_cancel()  # who no longer waits can't take the answer's place away

    def run() -> None:
        try:
            found.set_result(look())
        except Exception as fault:  # noqa: BLE001 - it is handed to whoever waits
            found.set_exception(fault)

    Thread(target=run, name="lookup", daemon=True).start()
    return await asyncio.wrap_future(found)

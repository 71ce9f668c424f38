"""Calls what blocks, for kinds of destination whose library does its own input and output.

Takes a function, returns what it returns or raises what it raises. A bounded number of threads; one that does
not come back keeps its place until it does, and is left behind when the process ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """At most `limit` of them. A pool of the standard library would keep the process from ending."""

    def __init__(self, name: str, limit: int) -> None:
        self.busy = 0
        self._name = name
        self._free = asyncio.Semaphore(limit)

    async def call(self, function: Callable[[], T]) -> T:
        """Wait for a free place, then for the function. Who is cancelled leaves the thread to itself."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        end = partial(self._end, answer)

        def work() -> None:
            try:
                settle = partial(end, function(), None)
            except BaseException as fault:  # noqa: BLE001 - it is raised again in who waits
                settle = partial(end, None, fault)
            with suppress(RuntimeError):  # the loop is closed: nobody waits for it any more
                loop.call_soon_threadsafe(settle)

        self.busy += 1
        try:
            Thread(target=work, name=self._name, daemon=True).start()
        except RuntimeError:  # the system has no more threads
            self._leave()
            raise
        return await answer

    def _end(self, answer: asyncio.Future[T], result: T, fault: BaseException | None) -> None:
        self._leave()
        if answer.done():
            return  # whoever waited has given up
        if fault is None:
            answer.set_result(result)
        else:
            answer.set_exception(fault)

    def _leave(self) -> None:
        self.busy -= 1
        self._free.release()

"""A suspect is delivered alone, so that a pill that kills its worker takes no neighbour along.

An entry whose worker died twice is a suspect. The replica stops taking, finishes what it has, reclaims and
delivers that one, then works normally for at least as long before it takes the next.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol


class Ward(Protocol):
    """What a quarantine needs of a lane."""

    async def idle(self) -> None:
        """Return when nothing is being taken and nothing is in work."""


class Quarantine:
    """One per process; `open` is set while work is normal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.wards: list[Ward] = []
        self._clock = clock
        self._rest_until = 0.0

    def ready(self) -> bool:
        """Whether a suspect may be taken now."""
        return self.open.is_set() and self._clock() >= self._rest_until

    async def rest(self) -> None:
        """Return when the next suspect may be taken."""
        await asyncio.sleep(max(0.0, self._rest_until - self._clock()))

    async def isolate(self, deliver: Callable[[], Awaitable[None]]) -> None:
        """Run `deliver` while nothing else is in work in this process; not at all when another runs so."""
        if not self.ready():
            return
        started = self._clock()
        self.open.clear()
        try:
            for ward in self.wards:
                await ward.idle()
            await deliver()
        finally:
            ended = self._clock()
            self._rest_until = ended + (ended - started)
            self.open.set()

"""The end of a dispatcher: what it waits for, it waits for once, not once per destination."""

from __future__ import annotations

import asyncio
from typing import cast

from common import keys
from common.settings import Destination, Redis, Settings
from dispatcher.lane import Lane
from dispatcher.serve import Service


class Leaving:
    """A lane that is closed only when the others are being closed too."""

    in_work: tuple[()] = ()

    def __init__(self, name: str, together: asyncio.Barrier) -> None:
        self.name = name
        self.keys = keys.Destination("redispatch", name)
        self._together = together

    async def idle(self) -> None:
        """Nothing is in work."""

    async def close(self) -> None:
        """With all of them."""
        await self._together.wait()


async def test_all_destinations_leave_at_the_same_time() -> None:
    names = ["one", "two", "three"]
    settings = Settings(
        redis=Redis(url="redis://127.0.0.1:1/0"),  # nobody there
        destinations=[Destination(name=name, type="discard") for name in names],
    )
    service = Service(settings, asyncio.Event())
    together = asyncio.Barrier(len(names))
    service._lanes = [cast(Lane, Leaving(name, together)) for name in names]
    async with asyncio.timeout(5):
        await service._drain([])
    await service.close()

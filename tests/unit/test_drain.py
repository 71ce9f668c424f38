"""The end of a dispatcher: what it waits for, it waits for once, not once per destination."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from redis.exceptions import ConnectionError as Gone

from common.settings import Destination, Redis, Settings
from dispatcher import lanes
from dispatcher.serve import Service


async def test_all_destinations_leave_at_the_same_time() -> None:
    names = ["one", "two", "three"]
    settings = Settings(
        redis=Redis(url="redis://127.0.0.1:1/0"),  # nobody there
        destinations=[Destination(name=name, type="discard") for name in names],
    )
    together = asyncio.Barrier(len(names))

    async def reap(*_: object, **__: object) -> list[str]:
        await together.wait()
        raise Gone

    service = Service(settings, asyncio.Event())
    await service.make()
    with patch.object(lanes, "reap", reap):
        async with asyncio.timeout(30), service._tasks:
            service._use(settings, service._made)
            await service._lanes.drain()
    assert together.n_waiting == 0
    await service.close()

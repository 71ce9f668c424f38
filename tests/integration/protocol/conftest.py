from __future__ import annotations

import pytest
from redis.asyncio import Redis

from tests.integration.protocol.stand import Stand
from tests.support.servers import Server


@pytest.fixture
async def stand(server: Server, redis: Redis) -> Stand:
    """A destination on each kind of server."""
    made = Stand(redis, cluster=server.kind == "cluster")
    await made.begin()
    return made

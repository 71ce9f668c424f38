"""The client of Redis, where it differs from what redis-py makes of a broken connection."""

from __future__ import annotations

import pytest
import uvloop
from redis import exceptions as errors
from redis.asyncio import Redis

from common import connect
from common.settings import Redis as Section
from tests.support.servers import Server


async def send_over_a_broken_connection(redis: Redis) -> None:
    connection = await redis.connection_pool.get_connection()
    writer = connection._writer  # its end is the only way to have it break right before a command
    assert writer is not None
    writer.transport.abort()
    try:
        with pytest.raises(errors.ConnectionError):
            await connection.send_command("PING")
        await redis.connection_pool.release(connection)
        assert await redis.ping()
    finally:
        await redis.aclose()


def test_a_connection_that_just_broke_is_trouble_with_redis_and_no_bug(valkey: Server) -> None:
    uvloop.run(send_over_a_broken_connection(connect.client(Section(url=valkey.url))))

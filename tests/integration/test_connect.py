"""The client of Redis, where it differs from what redis-py makes of a broken connection."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvloop
from redis import exceptions as errors
from redis.asyncio import Redis

from common import connect
from common.connection import Tcp, ask
from common.settings import Redis as Section
from common.units import Duration
from tests.support.listener import Listener
from tests.support.receiver import Receiver
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


async def test_a_server_that_hangs_up_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What uvloop may have read by the time a connection is handed out."""
    connecting = asyncio.open_connection

    async def late(*to: Any, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await connecting(*to, **options)
        assert await reader.read() == b""
        return reader, writer

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    monkeypatch.setattr(asyncio, "open_connection", late)
    async with Listener(hang_up) as listener:
        at: dict[str, Any] = {"host": "127.0.0.1", "port": listener.port}
        connection = Tcp(**at, socket_timeout=30, protocol=2, driver_info=None)
        with pytest.raises(errors.ConnectionError, match="closed by server"):
            await ask(connection, "PING")


async def go_on(redis: Redis) -> None:
    while True:
        await redis.ping()


async def test_a_call_that_is_cancelled_ends_whenever_that_comes(valkey: Server) -> None:
    redis = connect.client(Section(url=valkey.url))
    try:
        for steps in range(50):
            await redis.ping()  # a connection is there
            calling = asyncio.create_task(go_on(redis))
            for _ in range(steps):
                await asyncio.sleep(0)
            calling.cancel()
            done, _ = await asyncio.wait([calling], timeout=30)
            calling.cancel()  # where the first one was lost
            assert done, f"cancelled after {steps} steps of the loop, it goes on"
    finally:
        await redis.aclose()


async def said_of(url: str) -> str:
    redis = connect.client(Section(url=url, timeout=Duration(10)))
    try:
        with pytest.raises((errors.RedisError, connect.Unusable)) as raised:
            await connect.inspect(redis, Section(url=url))
    finally:
        await redis.aclose()
    fault = raised.value
    return connect.describe(fault, url) if isinstance(fault, errors.RedisError) else str(fault)


async def test_what_is_no_redis_is_told_as_such(receiver: Receiver) -> None:
    url = receiver.url.replace("http://", "redis://")
    assert "is something else" in await said_of(url)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("unix:///no/such.sock", "can't be reached (No such file or directory): is it running?"),
        (
            "redis://no-such-host.invalid:6379/0",
            "can't be reached (Name or service not known): is it running?",
        ),
    ],
)
async def test_why_it_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, url: str, says: str) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)  # what the system's takes is not ours to know
    assert (await said_of(url)).startswith(f"Redis at {url} {says}")


async def test_a_database_that_there_is_not(valkey: Server) -> None:
    url = valkey.url.rpartition("/")[0] + "/99"
    assert await said_of(url) == (
        f"{url} can't be used (DB index is out of range): see redis.url, REDISPATCH_REDIS_URL"
    )

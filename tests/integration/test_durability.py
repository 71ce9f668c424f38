"""What a 2xx means beyond `written`: replicas have it, or it is on disk; a repeat is not told sooner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Literal

import pytest
from redis.asyncio import Redis

from common import connect, keys
from common.alert import Alert
from common.settings import Destination, Ingest, Settings
from common.settings import Redis as RedisSection
from common.units import Duration
from ingest.append import Appender
from ingest.event import Event, Stored, Unavailable
from ingest.route import Router
from tests.support.fleet import eventually
from tests.support.servers import Kind, Server

SINK = keys.Destination("redispatch", "sink")
WAIT = Duration(0.3)  # where what is waited for does not come
PATIENT = Duration(20)
Appenders = Callable[..., Appender]


def event(host: str) -> Event:
    return Event(Alert(incident=f"{host}:n", host=host, name="n", timestamp=1_772_439_277_000))


@pytest.fixture
async def appenders() -> AsyncIterator[Appenders]:
    """`appenders(server, "fsynced")`: as ingest has one with that durability."""
    async with AsyncExitStack() as stack:

        def make(
            server: Server, durability: Literal["replicated", "fsynced"], timeout: Duration = WAIT
        ) -> Appender:
            settings = Settings(
                redis=RedisSection(url=server.url, timeout=Duration(5)),
                ingest=Ingest(durability=durability, durability_timeout=timeout),
                destinations=[Destination(name="sink", type="discard")],
            )
            redis: Redis = connect.client(settings.redis, blocking=timeout)
            stack.push_async_callback(redis.aclose, close_connection_pool=True)
            made = Appender(redis, settings, Router(settings), cluster=False)
            stack.push_async_callback(made.close)
            return made

        yield make


async def status(appender: Appender, host: str) -> str:
    """Of one alert; "503" when it is not where it should be."""
    try:
        [stored] = await appender.submit([event(host)])
    except Unavailable as fault:
        return f"503 {fault.detail}"
    assert isinstance(stored, Stored)
    return stored.status


@pytest.mark.parametrize("kind", ["valkey", "redis"])
async def test_replicated(kind: Kind, new_server: Callable[..., Server], appenders: Appenders) -> None:
    primary = new_server(kind, "--repl-diskless-sync-delay", "0")
    appender, patient = appenders(primary, "replicated"), appenders(primary, "replicated", PATIENT)
    none = "503 only 0 of 1 replicas have it so far"
    assert await status(appender, "a") == none
    assert await status(appender, "a") == none  # it is known, but no safer for that
    replica = new_server(kind, "--replicaof", primary.host, str(primary.port))
    await eventually(lambda: "state=online" in primary.cli("INFO", "replication"), "the replica is there")

    assert await status(patient, "a") == "duplicate"
    assert await status(patient, "b") == "queued"
    assert replica.cli("XLEN", SINK.stream) == 2
    replica.freeze()
    assert await status(appender, "c") == none
    assert await status(appender, "b") == none  # not even what it has: the script has written something since
    replica.thaw()
    assert primary.cli("XLEN", SINK.stream) == 3


async def test_fsynced(new_server: Callable[..., Server], appenders: Appenders) -> None:
    server = new_server("valkey", "--appendfsync", "always", aof=True)
    appender = appenders(server, "fsynced", PATIENT)
    assert await status(appender, "a") == "queued"
    assert await status(appender, "a") == "duplicate"
    server.kill()  # what was told is on disk
    server.restart()
    assert server.cli("XLEN", SINK.stream) == 1


async def test_not_yet_on_disk(new_server: Callable[..., Server], appenders: Appenders) -> None:
    server = new_server("valkey", "--appendfsync", "no", aof=True)  # nothing is synced before it is told to
    appender = appenders(server, "fsynced")
    not_yet = "503 it is not on disk so far"
    assert await status(appender, "a") == not_yet
    assert await status(appender, "a") == not_yet  # it is known, but no safer for that
    server.cli("CONFIG", "SET", "appendfsync", "everysec")
    patient = appenders(server, "fsynced", PATIENT)
    assert await status(patient, "a") == "duplicate"
    assert await status(patient, "b") == "queued"


@pytest.mark.parametrize(
    ("kind", "aof", "why"),
    [("redis", True, "lacks WAITAOF (Redis 7.2, Valkey)"), ("valkey", False, "has no AOF (appendonly yes)")],
)
async def test_a_server_that_can_not_is_refused(
    kind: Kind, aof: bool, why: str, new_server: Callable[..., Server], connected: Callable[[Server], Redis]
) -> None:
    server = new_server(kind, aof=aof)
    with pytest.raises(connect.Unusable, match="durability is fsynced") as refused:
        await connect.inspect(connected(server), RedisSection(url=server.url), "fsynced")
    assert why in str(refused.value)

"""The client where sentinels say who the primary is: who is believed, and when it is looked for again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

import pytest
from redis import exceptions as errors
from redis.asyncio import Redis

from common import connect, sentinel
from common.settings import Redis as Section
from common.trouble import server_of
from common.units import Address, Duration
from common.wire import Wire
from tests.support.fleet import eventually
from tests.support.leaks import Held
from tests.support.says import Says
from tests.support.servers import Server, free_port

Sentinels = Callable[..., Awaitable[list[Says]]]


@pytest.fixture
async def sentinels() -> AsyncIterator[Sentinels]:
    """`await sentinels(server, ...)`: one for each, that names it."""
    async with AsyncExitStack() as stack:

        async def start(*servers: Server) -> list[Says]:
            made = [await Says(at(server)).start() for server in servers]
            for each in made:
                stack.push_async_callback(each.close)
            return made

        yield start


@pytest.fixture
async def replica(valkey: Server, new_server: Callable[..., Server]) -> Server:
    """A replica of `valkey`."""
    return new_server("valkey", "--replicaof", f"{valkey.host} {valkey.port}")


def at(server: Server) -> Address:
    return Address(server.host, server.port)


def url(told: list[Says]) -> str:
    return f"redis+sentinel://{','.join(f'{each.at.host}:{each.at.port}' for each in told)}/alerts/0"


async def port_of(redis: Redis | Wire) -> int:
    """Of the server that answers."""
    return int((await redis.execute_command("CONFIG", "GET", "port"))[1])


async def test_a_replica_is_not_taken_for_the_primary(
    valkey: Server, replica: Server, sentinels: Sentinels, connected: Callable[[str], Redis]
) -> None:
    told = await sentinels(replica, valkey, valkey)  # two of them are heard
    told[0].epoch = 9
    wire = Wire(connected(url(told)))
    assert await port_of(wire) == valkey.port
    await wire.close()


async def test_where_nobody_is_a_primary(
    replica: Server, sentinels: Sentinels, connected: Callable[[str], Redis]
) -> None:
    told = await sentinels(replica)
    with pytest.raises(errors.ConnectionError, match=f"{replica.port} is a slave, no primary"):
        await connected(url(told)).execute_command("PING")


async def test_the_newest_configuration_counts(
    valkey: Server, new_server: Callable[..., Server], sentinels: Sentinels, connected: Callable[[str], Redis]
) -> None:
    old = new_server()  # says that it is a primary
    told = await sentinels(old, valkey)
    told[1].epoch = 2
    wire = Wire(connected(url(told)))
    assert await port_of(wire) == valkey.port
    await wire.close()


async def test_what_is_wrong_with_the_likeliest_is_told(
    valkey: Server, replica: Server, sentinels: Sentinels, connected: Callable[[str], Redis]
) -> None:
    """Not what is wrong with the one before it, which a sentinel still names."""
    newer, older = told = await sentinels(replica, valkey)
    newer.epoch, older.primary = 2, Address("127.0.0.1", free_port())
    with pytest.raises(errors.ConnectionError, match=f"{replica.port} is a slave, no primary") as raised:
        await connected(url(told)).execute_command("PING")
    assert server_of(raised.value) == f"{replica.host}:{replica.port}"


async def test_one_that_does_not_answer_is_not_waited_for(valkey: Server, sentinels: Sentinels) -> None:
    told = await sentinels(valkey, valkey, valkey)
    told[0].silent = True
    redis = connect.client(Section(url=url(told), timeout=Duration(100)))
    async with asyncio.timeout(30):
        await redis.execute_command("PING")
    await redis.aclose()


async def test_one_that_is_back_is_asked_again(
    valkey: Server, sentinels: Sentinels, connected: Callable[[str], Redis]
) -> None:
    (told,) = await sentinels(valkey)
    redis = connected(url([told]))
    primary, told.primary = told.primary, None
    with pytest.raises(sentinel.Unknown, match="no primary 'alerts': No such master with that name"):
        await redis.execute_command("PING")
    told.primary = primary
    assert await redis.execute_command("PING")


async def test_sentinels_that_are_away(connected: Callable[[str], Redis]) -> None:
    away = f"redis+sentinel://:pw@127.0.0.1:{free_port()}/alerts/0"
    with pytest.raises(errors.ConnectionError) as raised:
        await connected(away).execute_command("PING")
    told = connect.describe(raised.value, away)
    assert "can't be found: none of its sentinels (1) can be asked: " in told
    assert "redis+sentinel://:***@127.0.0.1:" in told


async def test_a_server_that_is_no_sentinel(valkey: Server) -> None:
    where = f"redis+sentinel://127.0.0.1:{valkey.port}/alerts/0"
    section = Section(url=where, timeout=Duration(10))
    redis = connect.client(section)
    with pytest.raises(sentinel.Unknown, match="unknown command 'SENTINEL'"):
        await connect.inspect(redis, section)
    await redis.aclose()


FOREIGN = [
    b":7\r\n",
    b"$-1\r\n",
    b"+OK\r\n",
    b"*1\r\n$2\r\nip\r\n",
    b"*2\r\n$2\r\nip\r\n$1\r\nx\r\n",
    b"*2\r\n*0\r\n*0\r\n",
    b"*6\r\n$2\r\nip\r\n$1\r\n\xff\r\n$4\r\nport\r\n$1\r\n1\r\n$12\r\nconfig-epoch\r\n$1\r\n1\r\n",
    b"*6\r\n$2\r\nip\r\n:1\r\n$4\r\nport\r\n$1\r\n1\r\n$12\r\nconfig-epoch\r\n$1\r\n1\r\n",
    b"*6\r\n$2\r\nip\r\n$1\r\na\r\n$4\r\nport\r\n$1\r\nx\r\n$12\r\nconfig-epoch\r\n$1\r\n1\r\n",
    b"what is this?\r\n",
]


@pytest.mark.parametrize("raw", FOREIGN)
async def test_an_answer_that_is_no_sentinel_s(
    valkey: Server, sentinels: Sentinels, connected: Callable[[str], Redis], raw: bytes
) -> None:
    told = await sentinels(valkey, valkey, valkey)
    told[0].raw = raw
    assert await port_of(connected(url(told))) == valkey.port
    for each in told:
        each.raw = raw
    with pytest.raises(sentinel.Unknown):
        await connected(url(told)).execute_command("PING")


@pytest.mark.parametrize("raw", [b":7\r\n", b"*0\r\n", b"*1\r\n:1\r\n", b"*1\r\n$1\r\n\xff\r\n", b"$-1\r\n"])
async def test_a_primary_that_is_no_server_of_ours(
    valkey: Server, sentinels: Sentinels, connected: Callable[[str], Redis], raw: bytes
) -> None:
    told, stranger = await sentinels(valkey, valkey)
    stranger.raw, told.primary = raw * 9, stranger.at  # the handshake asks more in one write
    with pytest.raises(errors.ConnectionError, match=f"{stranger.at.port} is a .*, no primary"):
        await connected(url([told])).execute_command("PING")


@pytest.mark.parametrize("hot", [True, False])
async def test_a_primary_that_was_demoted_is_left(
    valkey: Server,
    new_server: Callable[..., Server],
    sentinels: Sentinels,
    connected: Callable[[str], Redis],
    hot: bool,
) -> None:
    """Its connections stay open, and it answers READONLY; when one has met that, all are left."""
    other = new_server()
    (told,) = await sentinels(valkey)
    redis = connected(url([told]))
    wire = Wire(redis)
    assert await port_of(wire) == await port_of(redis) == valkey.port
    valkey.cli("REPLICAOF", other.host, other.port)
    told.primary = at(other)
    first, second = (wire, redis) if hot else (redis, wire)
    with pytest.raises(errors.ReadOnlyError):
        await first.execute_command("SET", "k", 1)
    assert await port_of(first) == await port_of(second) == other.port
    assert wire.connections == 2
    await wire.close()
    valkey.cli("REPLICAOF", "NO", "ONE")


async def test_a_failover_that_nobody_died_for(
    valkey: Server,
    new_server: Callable[..., Server],
    sentinels: Sentinels,
    connected: Callable[[str], Redis],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The old primary takes writes for some time; what the sentinels say is looked at all the while."""
    monkeypatch.setattr(sentinel, "LOOK", 0)
    other = new_server()
    told = await sentinels(valkey, valkey, valkey)
    wire = Wire(connected(url(told)))
    assert await port_of(wire) == valkey.port
    told[0].epoch, told[0].primary = 0, at(other)  # one that was cut off is not followed
    asked = told[0].asked
    for _ in range(20):
        assert await port_of(wire) == valkey.port
    await eventually(lambda: told[0].asked > asked, "another question")
    for each in told:
        each.epoch, each.primary = 2, at(other)
    await eventually(lambda: has_moved(wire, other), "the new primary is used")
    await wire.close()


async def test_who_leads_a_failover_is_not_believed_before_the_others(
    valkey: Server, new_server: Callable[..., Server], sentinels: Sentinels, connected: Callable[[str], Redis]
) -> None:
    """It tells the new epoch with the old address, for as long as there are replicas to be told."""
    other = new_server()
    leader, follower = told = await sentinels(valkey, valkey)
    leader.epoch, leader.flags = 2, "master,failover_in_progress,force_failover"
    wire = Wire(connected(url(told)))
    assert await port_of(wire) == valkey.port
    follower.epoch, follower.primary = 2, at(other)
    await eventually(lambda: has_moved(wire, other), "the new primary is used")
    await wire.close()


async def has_moved(wire: Wire, to: Server) -> bool:
    return await port_of(wire) == to.port


async def test_a_hundred_failovers_leave_nothing_behind(
    valkey: Server, new_server: Callable[..., Server], sentinels: Sentinels
) -> None:
    pair = [valkey, new_server()]
    told = await sentinels(*pair, *pair[:1])
    redis = connect.client(Section(url=url(told), timeout=Duration(10)))
    wires = [Wire(redis) for _ in range(3)]
    held: Held | None = None
    for n in range(100):
        for each in told:
            each.epoch, each.primary = n, at(pair[n % 2])
        pair[n % 2 - 1].cli("CLIENT", "KILL", "TYPE", "normal")  # as a sentinel does
        clients: list[Wire | Redis] = [*wires, redis]
        for client in clients:
            await eventually(partial(writes, client, pair[n % 2]), "a write")
        held = held or Held()
    assert held is not None
    await held.no_more()
    for wire in wires:
        await wire.close()
    await redis.aclose()


async def writes(client: Wire | Redis, to: Server) -> bool:
    try:
        await client.execute_command("SET", "k", 1)
    except errors.ConnectionError:
        return False
    return await port_of(client) == to.port


@pytest.mark.parametrize("kind", ["redis://{}/0", "redis+sentinel://{}/alerts/0"])
async def test_a_thousand_refused_connections_leave_nothing_behind(kind: str) -> None:
    redis = connect.client(Section(url=kind.format(f"127.0.0.1:{free_port()}")), connections=4)
    wire = Wire(redis)
    held = Held()
    for _ in range(500):
        for client in (wire, redis):
            with pytest.raises(errors.ConnectionError):
                await client.execute_command("PING")
    await held.no_more()
    await wire.close()
    await redis.aclose()

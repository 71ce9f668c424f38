"""The steps on a Cluster of three: each key where it belongs, slots that move, and servers that go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from redis import exceptions as errors
from redis.asyncio import Redis

from common import cluster as step
from common import connect, keys
from common.cluster import key_of
from common.settings import Ingest, Settings
from common.settings import Redis as Section
from common.snapshot import snapshot
from common.trouble import Kind, kind_of
from common.units import Duration
from common.wire import Wire
from dispatcher.take import make_group, take, wait_for_bell
from ingest.append import Appender
from ingest.event import Event, Unavailable
from ingest.receipt import Receipts
from ingest.route import Router
from ops import status
from tests.support.cluster import Cluster, begin_move, is_well, slot_of
from tests.support.deliveries import alert
from tests.support.fleet import eventually
from tests.support.leaks import Held
from tests.support.servers import Server, free_port
from tests.support.settings import build

NAMES = ("one", "two", "three", "four", "five")
NAMESPACE = "redispatch"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three primaries, which take none of them for dead just because it is slow."""
    made = Cluster("valkey", tmp_path_factory.mktemp("cluster"), timeout=60_000).start()
    yield made
    made.close()


@pytest.fixture
async def redis(cluster: Cluster, connected: Callable[[str], Redis]) -> Redis:
    """A client of an empty Cluster."""
    for node in cluster.nodes:
        node.cli("FLUSHALL")
        node.cli("SCRIPT", "FLUSH")
        node.cli("CONFIG", "SET", "maxmemory", 0)
    return connected(cluster.url)


@pytest.fixture
async def wire(redis: Redis) -> AsyncIterator[Wire]:
    """Connections of one's own."""
    made = Wire(redis)
    yield made
    await made.close()


def settings(cluster: Cluster, **sections: Any) -> Settings:
    return build(cluster.url, destinations=NAMES, **sections)


def slots() -> dict[str, int]:
    return {name: slot_of(keys.stream(NAMESPACE, name)) for name in NAMES}


def event(n: int) -> Event:
    return Event(alert(host=f"h{n}", incident=f"h{n}:disk"), key=f"k{n}")


async def test_each_command_goes_where_its_key_is(cluster: Cluster, wire: Wire) -> None:
    told = await wire.pipeline([*(("SET", f"k{n}", n) for n in range(20)), ("INCR", "{k1}", "wrong")])
    assert told[:20] == [b"OK"] * 20
    assert isinstance(told[20], errors.ResponseError)
    assert await wire.pipeline([("GET", f"k{n}") for n in range(20)]) == [b"%d" % n for n in range(20)]
    assert all(node.cli("DBSIZE") > 1 for node in cluster.nodes)


async def test_what_comes_after_is_told_by_each_server(wire: Wire) -> None:
    commands = [("SET", f"k{n}", n) for n in range(20)]
    assert await wire.pipeline(commands, ("WAIT", 0, 1)) == [b"OK"] * 20 + [0] * 3


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("EVALSHA", "f00", 2, "k", "l", "arg"), "k"),
        (("EVAL", "return 1", 0), None),
        (("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "k", ">"), "k"),
        (("XREAD", "COUNT", 1, "BLOCK", 10, "STREAMS", "k", "0-0"), "k"),
        (("XGROUP CREATE", "k", "g", "0", "MKSTREAM"), "k"),
        (("SET", "k", "v"), "k"),
        (("TIME",), None),
        (("INFO", "everything"), None),
    ],
)
def test_key_of(command: tuple[str | int, ...], key: str | None) -> None:
    assert key_of(command) == key


async def test_a_slot_that_has_moved(cluster: Cluster, redis: Redis, wire: Wire) -> None:
    key = "moved"
    await wire.execute_command("SET", key, 1)
    await redis.execute_command("GET", key)
    before = wire.connections
    source = cluster.owner(slot_of(key))
    target = next(node for node in cluster.nodes if node is not source)
    try:
        cluster.move(slot_of(key), target)
        assert await wire.execute_command("GET", key) == b"1"
        assert wire.connections > before  # it may be another server, for all that a claim knows
        assert await redis.execute_command("GET", key) == b"1"
        assert target.cli("GET", key) == "1"
    finally:
        cluster.move(slot_of(key), source)


async def test_a_server_that_prefers_names_and_knows_none(cluster: Cluster, redis: Redis, wire: Wire) -> None:
    """It says that the slot is at `?`: at the host where it was asked, then."""
    key = "moved"
    source = cluster.owner(slot_of(key))
    target = next(node for node in cluster.nodes if node is not source)
    for client in (wire, redis):
        await client.execute_command("SET", key, 1)
    source.cli("CONFIG", "SET", "cluster-preferred-endpoint-type", "hostname")
    try:
        cluster.move(slot_of(key), target)
        with pytest.raises(errors.ResponseError, match=f":{target.port}$"):
            source.cli("GET", key)
        for client in (wire, redis):
            assert await client.execute_command("GET", key) == b"1"
    finally:
        source.cli("CONFIG", "SET", "cluster-preferred-endpoint-type", "ip")
        cluster.move(slot_of(key), source)


@pytest.mark.parametrize("hot", [True, False])
async def test_a_slot_on_its_way(cluster: Cluster, redis: Redis, wire: Wire, hot: bool) -> None:
    client = wire if hot else redis
    there, moved, fresh = "{way}:there", "{way}:moved", "{way}:fresh"
    slot = slot_of(there)
    source = cluster.owner(slot)
    target = next(node for node in cluster.nodes if node is not source)
    for key in (there, moved):
        await client.execute_command("SET", key, "old")
    begin_move(cluster, slot, source, target)
    source.cli("MIGRATE", target.host, target.port, moved, 0, 5000)
    try:
        assert await client.execute_command("GET", there) == b"old"
        assert await client.execute_command("GET", moved) == b"old"
        assert await client.execute_command("SET", fresh, "new")
        assert await client.execute_command("GET", fresh) == b"new"
        with pytest.raises(errors.ResponseError) as raised:
            await client.execute_command("EVAL", "return redis.call('GET', KEYS[1])", 2, there, moved)
        assert kind_of(raised.value) is Kind.CLUSTER
    finally:
        cluster.move(slot, target)
        assert await client.execute_command("GET", there) == b"old"
        cluster.move(slot, source)


async def test_one_slot_has_moved_and_another_is_on_its_way_there(cluster: Cluster, wire: Wire) -> None:
    source, target, _ = cluster.nodes
    owned = (f"k{n}" for n in count() if cluster.owner(slot_of(f"k{n}")) is source)
    moved, going = next(owned), next(owned)
    await wire.pipeline([("SET", moved, 1), ("SET", going, 2)])
    begin_move(cluster, slot_of(going), source, target)
    source.cli("MIGRATE", target.host, target.port, going, 0, 5000)
    try:
        cluster.move(slot_of(moved), target)
        commands = [("GET", moved), ("GET", going), ("INCR", moved), ("GET", going)]
        assert (await wire.pipeline(commands, ("WAIT", 0, 1)))[:4] == [b"1", b"2", 2, b"2"]
        assert await wire.pipeline(commands) == [b"2", b"2", 3, b"2"]
    finally:
        cluster.move(slot_of(going), target)
        for key in (moved, going):
            cluster.move(slot_of(key), source)


async def test_all_steps_of_ingest(cluster: Cluster, redis: Redis, wire: Wire) -> None:
    assert len({cluster.owner(slot) for slot in slots().values()}) > 1, "names that are on one server"
    made = settings(cluster)
    appender = Appender(redis, made, Router(made), cluster=True)
    stored = await appender.submit([event(n) for n in range(50)])
    assert [one.status for one in stored] == ["queued"] * 50
    again = await appender.submit([event(n) for n in range(51)])
    assert [one.status for one in again] == ["duplicate"] * 50 + ["queued"]
    receipt = await Receipts(wire, NAMESPACE, ["one"]).find("k7")
    assert receipt is not None
    assert {place.name for place in receipt.destinations} == set(NAMES)
    looked = await status.look(redis, made)
    seen = looked.seen
    assert looked.whole
    assert {each.snapshot.depth for each in seen} == {51}
    assert {each.snapshot.unaccounted for each in seen} == {0}
    await appender.close()


async def test_one_server_that_refuses(cluster: Cluster, redis: Redis) -> None:
    """What the others have is there; nobody is told so before all have it, and a repeat adds the rest."""
    made = settings(cluster)
    appender = Appender(redis, made, Router(made), cluster=True)
    refusing = cluster.owner(slots()["one"])
    refusing.cli("CONFIG", "SET", "maxmemory", 1)
    one = event(next(n for n in range(99) if not on(cluster, n, refusing)))
    with pytest.raises(Unavailable, match="oom"):
        await appender.submit([one])
    depths = {name: (await snapshot(redis, NAMESPACE, name)).depth for name in NAMES}
    assert depths == {name: int(cluster.owner(slot) is not refusing) for name, slot in slots().items()}
    refusing.cli("CONFIG", "SET", "maxmemory", 0)
    assert (await appender.submit([one]))[0].status == "queued"
    for name in NAMES:
        seen = await snapshot(redis, NAMESPACE, name)
        assert (seen.depth, seen.unaccounted) == (1, 0)
    await appender.close()


def on(cluster: Cluster, n: int, server: Server) -> bool:
    """Whether what is known of that event's incident is there."""
    return cluster.owner(slot_of(keys.incident(NAMESPACE, f"h{n}:disk"))) is server


async def test_one_server_that_forgot_the_scripts(cluster: Cluster, redis: Redis) -> None:
    made = settings(cluster)
    appender = Appender(redis, made, Router(made), cluster=True)
    await appender.submit([event(n) for n in range(20)])
    cluster.owner(slots()["one"]).cli("SCRIPT", "FLUSH")
    stored = await appender.submit([event(n) for n in range(20, 40)])
    assert [(one.status, len(one.destinations)) for one in stored] == [("queued", len(NAMES))] * 20
    await appender.close()


async def test_no_replica_where_one_is_wanted(cluster: Cluster, redis: Redis) -> None:
    made = settings(cluster, ingest=Ingest(durability="replicated"))
    appender = Appender(redis, made, Router(made), cluster=True)
    with pytest.raises(Unavailable, match="only 0 of 1 replicas"):
        await appender.submit([event(1)])
    await appender.close()


async def test_a_destination_while_its_slot_moves(cluster: Cluster, redis: Redis, wire: Wire) -> None:
    """Refused in the middle of it, and nothing is lost or there twice afterwards."""
    at = keys.Destination(NAMESPACE, "one")
    made = settings(cluster)
    appender = Appender(redis, made, Router(made), cluster=True)
    await make_group(redis, at)
    await appender.submit([event(n) for n in range(20)])
    assert len((await take(wire, at, "a", 5)).entries) == 5
    source = cluster.owner(slots()["one"])
    target = next(node for node in cluster.nodes if node is not source)
    loop = asyncio.get_running_loop()

    async def half_way() -> None:
        with pytest.raises(Unavailable, match="cluster"):
            await appender.submit([event(n) for n in range(15, 25)])

    def between() -> None:
        asyncio.run_coroutine_threadsafe(half_way(), loop).result(20)

    try:
        await asyncio.to_thread(cluster.move, slots()["one"], target, between)
        await appender.submit([event(n) for n in range(15, 25)])
        seen = await snapshot(redis, NAMESPACE, "one")
        assert (seen.depth, seen.in_flight, seen.unaccounted) == (25, 5, 0)
        assert len((await take(wire, at, "a", 50)).entries) == 20
    finally:
        await asyncio.to_thread(cluster.move, slots()["one"], source)
        await appender.close()


async def test_a_destination_whose_slot_moves_at_once(cluster: Cluster, redis: Redis, wire: Wire) -> None:
    """With all that is in work; whoever waits for the bell hears it there. And back, while alerts come."""
    at = keys.Destination(NAMESPACE, "one")
    made = settings(cluster)
    appender = Appender(redis, made, Router(made), cluster=True)
    await make_group(redis, at)
    await appender.submit([event(n) for n in range(10)])
    taken = await take(wire, at, "a", 3)
    in_work = [[entry.id, "a", 1] for entry in taken.entries]
    source = cluster.owner(slots()["one"])
    target = next(node for node in cluster.nodes if node is not source)
    [(last, _)] = source.cli("XREVRANGE", at.stream, "+", "-", "COUNT", 1)
    waits = connect.client(Section(url=cluster.url), blocking=60)
    waiting = Wire(waits)
    bell = asyncio.create_task(wait_for_bell(waiting, at, last, 60_000))
    over = asyncio.Event()
    try:
        await eventually(lambda: "flags=b" in source.cli("CLIENT", "LIST"), "somebody waits")
        await asyncio.to_thread(cluster.move_at_once, slots()["one"], target)
        assert not bell.done()
        load = asyncio.create_task(submit_until(over, appender))
        async with asyncio.timeout(20):
            await bell
        assert owned(target.cli("XPENDING", at.stream, keys.GROUP, "-", "+", 10)) == in_work
    finally:
        await asyncio.to_thread(cluster.move_at_once, slots()["one"], source)
        over.set()
        await waiting.close()
        await waits.aclose()
    stored = await load
    assert owned(source.cli("XPENDING", at.stream, keys.GROUP, "-", "+", 10)) == in_work
    seen = await snapshot(redis, NAMESPACE, "one")
    assert (seen.depth, seen.in_flight, seen.unaccounted) == (stored, 3, 0)
    assert len((await take(wire, at, "a", 9999)).entries) == stored - 3
    await appender.close()


def owned(pending: list[Any]) -> list[list[Any]]:
    """Of each entry in work its id, its owner, and how often it was delivered."""
    return [[entry, consumer, count] for entry, consumer, _, count in pending]


async def submit_until(over: asyncio.Event, appender: Appender) -> int:
    """One alert after the other, each until it is there; how many there are, the first ten besides."""
    for n in count(10):
        while True:
            try:
                await appender.submit([event(n)])
                break
            except Unavailable:
                await asyncio.sleep(0.01)
        if over.is_set():
            return n + 1
    raise AssertionError("an end of count()")


async def test_moves_and_broken_connections_leave_nothing_behind(
    cluster: Cluster, redis: Redis, wire: Wire
) -> None:
    slot, held = slot_of("to and fro"), None
    clients: list[Wire | Redis] = [wire, redis]
    for n in range(20):
        cluster.move(slot, cluster.nodes[1 - n % 2])  # the first one has it
        cluster.nodes[2].cli("CLIENT", "KILL", "TYPE", "normal")
        for client in clients:
            await eventually(partial(answers, client), "all servers")
        held = held or Held()
    assert held is not None
    await held.no_more()


async def answers(client: Wire | Redis) -> bool:
    try:
        for n in range(9):
            await client.execute_command("GET", f"k{n}")
        await client.execute_command("SET", "to and fro", 1)
    except (errors.ConnectionError, errors.MovedError):  # a server is the last to know of a move
        return False
    return True


async def test_a_server_that_has_nothing_any_more_is_let_go(
    cluster: Cluster, redis: Redis, wire: Wire
) -> None:
    """Its connections are closed, also those in use."""
    assert isinstance(redis, step.Cluster)
    commands = [("GET", f"k{n}") for n in range(20)]
    await wire.pipeline(commands)
    await redis.execute_command("GET", "k1")
    first, *gone = redis.nodes.values()
    held = Held()
    await redis._use([[0, 16383, [first.address.host.encode(), first.address.port]]], first.address)
    assert await wire.pipeline(commands) == [None] * 20
    assert {node.address for node in gone} <= redis.nodes.keys()  # they have said so themselves
    assert not {*gone} & {*redis.nodes.values()}
    await held.no_more()


async def test_refused_connections_leave_nothing_behind() -> None:
    redis = connect.client(Section(url=f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{free_port()}"))
    wire = Wire(redis)
    held = Held()
    for _ in range(100):
        for client in (wire, redis):
            with pytest.raises(errors.ConnectionError):
                await client.execute_command("GET", "k")
    await held.no_more()
    await wire.close()
    await redis.aclose()


async def said_of(url: str) -> str:
    section = Section(url=url, timeout=Duration(10))
    redis = connect.client(section)
    try:
        with pytest.raises(connect.Unusable) as raised:
            await connect.inspect(redis, section)
    finally:
        await redis.aclose()
    return str(raised.value)


async def test_every_primary_is_looked_at(cluster: Cluster, redis: Redis) -> None:
    node = cluster.nodes[1]
    node.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        assert f"127.0.0.1:{node.port} of redis+cluster://127.0.0.1:" in await said_of(cluster.url)
    finally:
        node.cli("CONFIG", "SET", "maxmemory-policy", "noeviction")
    found = await connect.inspect(redis, Section(url=cluster.url))
    assert (found.cluster, found.policy, found.maxmemory) == (True, "noeviction", 0)


async def test_addresses_of_the_other_kind(cluster: Cluster, redis: Redis, valkey: Server) -> None:
    one = f"redis://127.0.0.1:{cluster.nodes[0].port}/0"
    assert "is one server of a Cluster: the address is redis+cluster://" in await said_of(one)
    none = valkey.url.replace("redis://", "redis+cluster://")
    assert "cluster support disabled" in await said_of(none)


async def test_servers_that_are_no_cluster_yet(tmp_path: Path) -> None:
    server = Server("valkey", tmp_path / "alone")
    server.start("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    try:
        told = await said_of(server.url.replace("redis://", "redis+cluster://"))
        assert "none of its servers has a slot" in told
    finally:
        server.kill()


async def test_servers_that_all_stand_still_are_waited_for_once(cluster: Cluster, redis: Redis) -> None:
    client = connect.client(Section(url=cluster.url, timeout=Duration(2)))
    wire = Wire(client)
    commands = [("SET", f"k{n}", n) for n in range(20)]
    await wire.pipeline(commands)
    for node in cluster.nodes:
        node.freeze()
    try:
        async with asyncio.timeout(16):  # six seconds, and eighteen if it were one server after the other
            for _ in range(2):  # over connections that are there, then while the map is in doubt
                with pytest.raises(errors.TimeoutError):
                    await wire.pipeline(commands)
    finally:
        for node in cluster.nodes:
            node.thaw()
        cluster.wait(lambda: all(map(is_well, cluster.nodes)), "all is well again")
        await wire.close()
        await client.aclose()

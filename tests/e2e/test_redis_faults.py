"""A Redis that dies, stands still, forgets, loses replies, refuses: both services wait it out."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import pytest

from common.scripts import Script
from tests.support.fleet import AT, Fleets, Running, eventually
from tests.support.proxy import Proxy
from tests.support.receiver import Answer, Receiver
from tests.support.servers import Kind, Pool, Server

NewServer = Callable[..., Server]
USUAL = {"timeout": "800ms"}  # for Redis, as it is when nobody says otherwise
SLOW = {"timeout": "60s"}  # for an attempt: none that is held back is given up meanwhile
both_kinds = pytest.mark.parametrize("kind", ["valkey", "redis"])


async def test_killed_and_restarted_under_load(
    fleets: Fleets, new_server: NewServer, receiver: Receiver
) -> None:
    server = new_server("valkey", "--appendfsync", "always", aof=True)
    fleet = await fleets(server)
    ingest, dispatcher = await fleet.both()
    async with fleet.load(ingest):
        for _ in range(2):
            await fleet.flowing()
            server.kill()
            await ingest.wait_metric("redispatch_redis_errors_total", 1)
            server.restart()
        await fleet.flowing()
    await fleet.settled()
    assert (ingest.process.code, dispatcher.process.code) == (None, None)


async def test_frozen(fleets: Fleets, new_server: NewServer, receiver: Receiver) -> None:
    gate = asyncio.Event()
    receiver.answers.append(Answer(until=gate))
    server = new_server()
    fleet = await fleets(server, redis=USUAL, destination=SLOW)
    ingest, dispatcher = await fleet.both()
    [held] = await fleet.post(ingest)
    await receiver.wait_for(1)
    server.freeze()
    alert = fleet.alert()
    took: list[float] = []
    while min(took, default=2) >= 2 and len(took) < 5:  # a busy machine may be late, but not each time
        began = time.monotonic()
        status, told = await fleet.send(ingest, alert)
        took.append(time.monotonic() - began)
        assert (status, told["detail"]) == (503, "Redis could not store it: timeout")
    assert min(took) < 2  # promised: decision 15
    gate.set()
    await dispatcher.wait_metric("redispatch_redis_errors_total", 1, kind="timeout")
    for running in (ingest, dispatcher):
        assert await running.status("/healthz") == 200
        assert await running.status("/readyz") == 200
    server.thaw()
    _, told = await fleet.insist(ingest, alert)
    await receiver.wait_ids({held, told["key"]})
    await fleet.settled()
    fleet.assert_no_duplicates()


@pytest.mark.parametrize("away", ["killed", "frozen"])
async def test_told_to_stop_while_it_is_away(
    fleets: Fleets, new_server: NewServer, receiver: Receiver, away: str
) -> None:
    gate = asyncio.Event()
    receiver.answers.append(Answer(until=gate))
    server = new_server("valkey", "--appendfsync", "always", aof=True)
    fleet = await fleets(server, redis=USUAL, dispatcher={"drain_timeout": "500ms"}, destination=SLOW)
    ingest, dispatcher = await fleet.both()
    [key] = await fleet.post(ingest)
    await receiver.wait_for(1)
    if away == "killed":
        server.kill()
    else:
        server.freeze()
    gate.set()
    await dispatcher.wait_metric("redispatch_redis_errors_total", 1)
    for running in (ingest, dispatcher):
        assert await running.process.stop() == 0, running.process.text
    assert dispatcher.lines("drain_incomplete")
    if away == "killed":
        server.restart()
    else:
        server.thaw()
    await fleet.dispatcher()
    seen = await fleet.settled()
    assert seen.ledger.delivered == 1
    assert receiver.accepted.keys() == {key}


@both_kinds
async def test_flushed(fleets: Fleets, pool: Pool, receiver: Receiver, kind: Kind) -> None:
    gate = asyncio.Event()
    server = pool.get(kind)
    fleet = await fleets(server, destination=SLOW)
    ingest, dispatcher = await fleet.both()
    await fleet.post(ingest)
    await fleet.settled()
    receiver.answers.append(Answer(until=gate))
    await fleet.post(ingest)
    await receiver.wait_for(2)
    dispatcher.freeze()
    server.cli("FLUSHALL")
    await fleet.post(ingest, 10)
    dispatcher.thaw()
    await receiver.wait_answered(11)
    gate.set()
    await dispatcher.wait_metric("redispatch_fenced_total", 1)  # it is no longer known
    await fleet.settled()
    assert await dispatcher.metric("redispatch_group_recreated_total") == 1
    assert await dispatcher.metric("redispatch_reclaimed_total") == 0  # read from the stream's beginning
    fleet.assert_no_duplicates()


async def test_a_group_made_again_sends_nothing_twice(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    gate = asyncio.Event()
    fleet = await fleets(valkey, destination=SLOW)
    ingest, dispatcher = await fleet.both()
    receiver.answers += [Answer(until=gate)] * 3
    await fleet.post(ingest, 3)
    await receiver.wait_for(3)
    valkey.cli("XGROUP", "DESTROY", AT.stream, "dispatchers")
    await dispatcher.wait_metric("redispatch_group_recreated_total", 1)
    await fleet.post(ingest)
    await receiver.wait_answered(1)  # so what lies before it has been read anew
    gate.set()
    await fleet.settled()
    fleet.assert_no_duplicates()


async def counted(step: str, ingest: Running, dispatcher: Running) -> bool:
    """Whether the loss of this step's reply shows where it should."""
    if step == "append":
        return await ingest.metric("redispatch_redis_errors_total", kind="connection") == 1
    if await dispatcher.metric("redispatch_redis_errors_total", kind="connection") < 1:
        return False
    own = {"take": "redispatch_reclaimed_total", "settle": "redispatch_fenced_total"}
    return step not in own or await dispatcher.metric(own[step]) == 1


@pytest.mark.parametrize(
    ("package", "step"),
    [("common", "append"), ("dispatcher", "take"), ("dispatcher", "claim"), ("dispatcher", "settle")],
)
async def test_a_reply_that_is_lost(
    fleets: Fleets, valkey: Server, proxied: Callable[[Server], Proxy], package: str, step: str
) -> None:
    proxy = await proxied(valkey).start()
    fleet = await fleets(valkey, through=proxy.url)
    ingest, dispatcher = await fleet.both()
    await fleet.post(ingest)  # from now on the server knows every script
    await fleet.settled()
    dispatcher.freeze()  # so that the next take is the one that brings the alert
    marker = Script(package, step).digest.encode()
    if step == "append":
        proxy.lose_reply(marker)
        alert = fleet.alert()
        assert (await fleet.send(ingest, alert))[0] == 503
        assert (await fleet.send(ingest, alert))[0] == 200  # it was stored
    else:
        await fleet.post(ingest)
        proxy.lose_reply(marker)
    dispatcher.thaw()
    await proxy.wait_lost()
    seen = await fleet.settled()
    assert (seen.ledger.accepted, seen.ledger.delivered) == (2, 2)
    fleet.assert_no_duplicates()
    await eventually(lambda: counted(step, ingest, dispatcher), "the loss in the metrics")


async def test_the_reply_of_a_dead_letter_that_is_lost(
    fleets: Fleets, valkey: Server, receiver: Receiver, proxied: Callable[[Server], Proxy]
) -> None:
    proxy = await proxied(valkey).start()
    fleet = await fleets(valkey, through=proxy.url)
    ingest, dispatcher = await fleet.both()
    await fleet.post(ingest)
    await fleet.settled()
    receiver.answers.append(Answer(422))
    proxy.lose_reply(Script("dispatcher", "settle").digest.encode())
    [key] = await fleet.post(ingest)
    await proxy.wait_lost()
    await dispatcher.wait_metric("redispatch_fenced_total", 1)
    await fleet.settled(died=1)
    assert [letter["key"] for letter in fleet.dead_letters()] == [key]


async def test_entries_that_nobody_can_read_die_alone(fleets: Fleets, valkey: Server) -> None:
    fleet = await fleets(valkey)
    ingest, dispatcher = await fleet.both()
    dispatcher.freeze()  # so that all of them are taken together
    [first] = await fleet.post(ingest)
    foreign: list[tuple[str | bytes, ...]] = [
        ("nonsense", "x"),
        ("key", "no-alert", "first_at", "1"),
        ("key", "no-json", "alert", b"\xff\x00{", "first_at", "1"),
        ("key", "no-time", "alert", "{}", "attempt", "many", "first_at", "soon"),
        ("", ""),
        ("key", b"\xff", "alert", "[" * 100_000, "first_at", "1"),
    ]
    for fields in foreign:
        valkey.cli("XADD", AT.stream, "*", *fields)
    [last] = await fleet.post(ingest)
    # Booked as an operator who adds entries by hand has to: those with a key were never accepted.
    valkey.cli("HINCRBY", AT.ledger, "accepted", 4)
    dispatcher.thaw()
    await fleet.receiver.wait_ids({first, last})
    await eventually(lambda: len(fleet.dead_letters()) == len(foreign), "all of them dead")
    assert {letter["reason"] for letter in fleet.dead_letters()} == {"malformed"}
    seen = await fleet.wait_snapshot(lambda seen: seen.depth == 0, "an empty queue")
    assert (seen.ledger.delivered, seen.ledger.died) == (2, len(foreign))


@both_kinds
async def test_at_maxmemory_the_queue_drains(
    fleets: Fleets, pool: Pool, receiver: Receiver, kind: Kind
) -> None:
    gate = asyncio.Event()
    receiver.answers.append(Answer(422, until=gate))  # a dead letter needs memory, too
    receiver.answers.append(Answer(500, until=gate))  # and so does a retry
    receiver.default = Answer(until=gate)
    server = pool.get(kind)
    fleet = await fleets(server, destination={"max_in_flight": 8, **SLOW})
    ingest, _ = await fleet.both()
    await fleet.post(ingest, 50)
    await receiver.wait_for(8)
    server.cli("CONFIG", "SET", "maxmemory", "1")
    refused = fleet.alert()
    for _ in range(2):
        status, told = await fleet.send(ingest, refused)
        assert (status, told["detail"]) == (503, "Redis could not store it: oom")
    gate.set()
    await fleet.settled(died=1)
    assert [letter["reason"] for letter in fleet.dead_letters()] == ["rejected"]
    server.cli("CONFIG", "SET", "maxmemory", "0")
    assert (await fleet.send(ingest, refused))[0] == 201
    await fleet.settled(died=1)
    fleet.assert_no_duplicates()


async def test_scripts_forgotten(fleets: Fleets, valkey: Server) -> None:
    fleet = await fleets(valkey)
    ingest, dispatcher = await fleet.both()
    async with fleet.load(ingest):
        for _ in range(5):
            await fleet.flowing(20)
            valkey.cli("SCRIPT", "FLUSH")
    await fleet.settled()
    fleet.assert_no_duplicates()
    assert await ingest.metric("redispatch_redis_errors_total") == 0
    assert await dispatcher.metric("redispatch_redis_errors_total") == 0


def clients(server: Server) -> int:
    """How many there are, besides the one that asks."""
    return len(server.cli("CLIENT", "LIST", "TYPE", "normal").splitlines()) - 1


async def test_connections_killed_again_and_again(fleets: Fleets, valkey: Server) -> None:
    fleet = await fleets(valkey)
    ingest, dispatcher = await fleet.both()

    async with fleet.load(ingest):
        await fleet.flowing(20)
        for _ in range(20):
            valkey.cli("CLIENT", "KILL", "TYPE", "normal")
            await eventually(lambda: clients(valkey) >= 2, "both connected again")
        await fleet.flowing()
    await fleet.settled()
    assert (ingest.process.code, dispatcher.process.code) == (None, None)


async def test_a_group_that_cannot_be_made_is_no_hot_loop(fleets: Fleets, valkey: Server) -> None:
    valkey.cli("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
    try:
        fleet = await fleets(valkey, through=valkey.url.replace("//", "//app:pw@"))
        ingest, dispatcher = await fleet.both()
        await fleet.post(ingest)
        await fleet.settled()
        valkey.cli("ACL", "SETUSER", "app", "-xgroup")  # without it nothing would start
        began = time.monotonic()
        valkey.cli("XGROUP", "DESTROY", AT.stream, "dispatchers")
        await fleet.post(ingest)
        # A hot loop counts thousands a second; here two tasks wait, 83 ms on average.
        told = await dispatcher.wait_metric("redispatch_redis_errors_total", 6, kind="nogroup")
        seconds = time.monotonic() - began
        assert told < 60 * (1 + seconds)
        lines = Counter(line["kind"] for line in dispatcher.lines("redis_trouble"))
        assert max(lines.values(), default=0) <= 1 + seconds / 10  # of each kind one in ten seconds
        assert await dispatcher.status("/healthz") == 200
        valkey.cli("ACL", "SETUSER", "app", "+xgroup")
        await fleet.settled()
        assert await dispatcher.metric("redispatch_group_recreated_total") == 1
    finally:
        valkey.cli("ACL", "DELUSER", "app")


@pytest.mark.parametrize(
    ("kind", "trouble", "refuse", "accept"),
    [
        ("redis", "noreplicas", "CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
        ("valkey", "readonly", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    ],
    ids=["noreplicas", "readonly"],
)
async def test_a_server_that_takes_no_writes_costs_no_attempt(
    fleets: Fleets,
    new_server: NewServer,
    receiver: Receiver,
    kind: Kind,
    trouble: str,
    refuse: str,
    accept: str,
) -> None:
    gate = asyncio.Event()
    receiver.default = Answer(until=gate)
    server = new_server(kind)
    fleet = await fleets(server, destination={"max_in_flight": 4, **SLOW})
    ingest, dispatcher = await fleet.both()
    await fleet.post(ingest, 8)
    await receiver.wait_for(4)
    server.cli(*refuse.split())
    alert = fleet.alert()
    status, told = await fleet.send(ingest, alert)
    assert (status, told["detail"]) == (503, f"Redis could not store it: {trouble}")
    gate.set()
    await dispatcher.wait_metric("redispatch_redis_errors_total", 3, kind=trouble)
    server.cli(*accept.split())
    assert (await fleet.insist(ingest, alert))[0] == 201
    await fleet.settled()
    fleet.assert_no_duplicates()
    assert {request.json()["data"]["attempt"] for request in receiver.requests} == {1}


async def test_one_key_fifty_times_at_once_over_two_processes(fleets: Fleets, valkey: Server) -> None:
    fleet = await fleets(valkey)
    one, two, _ = await asyncio.gather(fleet.ingest(), fleet.ingest(), fleet.dispatcher())
    alert = fleet.alert()
    answers = await asyncio.gather(*(fleet.send(ingest, alert) for ingest in (one, two) * 25))
    assert sorted(status for status, _ in answers) == [200] * 49 + [201]
    assert len({told["key"] for _, told in answers}) == 1
    seen = await fleet.settled()
    assert (seen.ledger.accepted, seen.ledger.delivered, seen.ledger.duplicate) == (1, 1, 0)
    assert list(fleet.receiver.accepted.values()) == [1]


async def test_a_second_group_is_said_loudly(fleets: Fleets, valkey: Server) -> None:
    fleet = await fleets(valkey)
    ingest, dispatcher = await fleet.both()
    await fleet.post(ingest)
    await fleet.settled()
    assert await dispatcher.metric("redispatch_redis_unsafe", kind="second_group") == 0
    valkey.cli("XGROUP", "CREATE", AT.stream, "audit", "0")
    await dispatcher.wait_metric("redispatch_redis_unsafe", 1, kind="second_group")
    await dispatcher.process.wait_line('"kind":"second_group"')
    loud = [line for line in dispatcher.lines("redis_unsafe") if line["kind"] == "second_group"]
    assert [(line["level"], line["streams"]) for line in loud] == [("error", "hook")]
    valkey.cli("XGROUP", "DESTROY", AT.stream, "audit")
    await eventually(lambda: _is_zero(dispatcher), "the metric taken back once the second group has gone")
    await fleet.settled()


async def _is_zero(dispatcher: Running) -> bool:
    return await dispatcher.metric("redispatch_redis_unsafe", kind="second_group") == 0

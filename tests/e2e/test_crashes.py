"""Dispatchers that die, stand still, are told to stop or lose their place in the group: nothing is lost.

The visibility timeout is a second where a test waits for it, a minute where nothing may depend on it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from common import keys
from tests.support.fleet import AT, Fleet, Fleets, eventually
from tests.support.receiver import Answer, Receiver, Request
from tests.support.servers import Pool, Server

MINUTE = {"visibility_timeout": "60s"}
HELD = {"timeout": "100s"}  # what a receiver holds back stays under way, however slow the machine


async def test_what_a_killed_dispatcher_had_sent_is_delivered_by_another(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    fleet = await fleets(valkey)
    receiver.answers.append(Answer(until=asyncio.Event()))
    ingest, doomed = await fleet.both()
    [key] = await fleet.post(ingest)
    await receiver.wait_for(1)
    await doomed.process.kill()
    heir = await fleet.dispatcher()
    first, second = await receiver.wait_for(2)
    assert first.id == second.id == key
    assert first.json()["data"] == second.json()["data"]  # the attempt was not spent: nobody answered
    await fleet.settled()
    assert await heir.metric("redispatch_reclaimed_total") == 1
    assert receiver.accepted == {key: 1}


async def test_a_paused_dispatcher_settles_once_or_is_fenced(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    """One delivery is settled by the other replica during the pause, one by the paused replica after it."""
    gates = [asyncio.Event() for _ in range(4)]
    receiver.answers.extend(Answer(until=gate) for gate in gates)
    fleet = await fleets(valkey, destination=HELD)
    ingest, paused = await fleet.both()
    [one] = await fleet.post(ingest)
    await receiver.wait_for(1)
    [two] = await fleet.post(ingest)
    await receiver.wait_for(2)
    paused.freeze()
    other = await fleet.dispatcher()
    again = [request.id for request in (await receiver.wait_for(4))[2:]]
    assert sorted(again) == sorted([one, two])
    gates[2 + again.index(one)].set()
    await other.wait_metric("redispatch_deliveries_total", 1, result="delivered")
    paused.thaw()
    gates[0].set()
    gates[1].set()
    await paused.wait_metric("redispatch_fenced_total", 1)
    await paused.wait_metric("redispatch_deliveries_total", 1, result="delivered")
    gates[2 + again.index(two)].set()
    await other.wait_metric("redispatch_fenced_total", 1)
    seen = await fleet.settled()
    assert seen.ledger.delivered == 2
    assert receiver.accepted == {one: 2, two: 2}


class Killer:
    """A receiver's answers: whoever delivers the pill is killed before it gets one."""

    def __init__(self) -> None:
        self.pill = ""
        self.pids: dict[str, int] = {}
        self.touched: list[str] = []

    def __call__(self, request: Request) -> Answer:
        if request.id != self.pill:
            return Answer()
        worker = request.headers["x-worker"]
        self.touched.append(worker)
        os.kill(self.pids[worker], signal.SIGKILL)
        return Answer(disconnect=True)


@asynccontextmanager
async def supervised(fleet: Fleet, killer: Killer, replicas: int) -> AsyncIterator[None]:
    """Dispatchers that are started again when they end."""

    async def supervise(name: str) -> None:
        generation = 0
        while True:
            generation += 1
            worker = f"{name}{generation}"
            process = await fleet.processes.dispatcher(fleet.config(), {"WORKER": worker})
            killer.pids[worker] = process.pid
            await process.wait_exit(60)

    tasks = [asyncio.create_task(supervise(chr(ord("a") + n))) for n in range(replicas)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.timeout(300)
async def test_a_pill_dies_and_takes_no_neighbour_along(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    fleet = await fleets(
        valkey,
        dispatcher={"visibility_timeout": "1500ms", "max_deliveries": 5},
        destination={"headers": {"x-worker": "${WORKER}"}},
    )
    receiver.default = killer = Killer()
    ingest = await fleet.ingest(env={"WORKER": "none"})
    await fleet.post(ingest, 100)
    [killer.pill] = await fleet.post(ingest)
    await fleet.post(ingest, 100)
    async with supervised(fleet, killer, replicas=2):
        await fleet.settled(died=1, deadline=90)
        await eventually(lambda: len(killer.pids) >= 2 + 5, "each that was killed started again")
    [letter] = fleet.dead_letters()
    assert (letter["key"], letter["reason"], letter["attempts"]) == (killer.pill, "max_deliveries", "0")
    assert killer.pill not in receiver.accepted
    assert len(receiver.accepted) == 200
    assert len(killer.touched) == 5
    assert len(killer.pids) == 2 + 5


@pytest.mark.timeout(300)
async def test_many_suspects_are_delivered_one_after_the_other(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    """What was in work in two crashes in a row; one suspect in each regular round would take 160 s."""
    receiver.default = Answer(until=asyncio.Event())
    fleet = await fleets(
        valkey, dispatcher={"visibility_timeout": "3s"}, destination=HELD | {"max_in_flight": 160}
    )
    ingest = await fleet.ingest()
    posted = await fleet.post(ingest, 160)
    for crashes in (1, 2):
        doomed = await fleet.dispatcher()
        await receiver.wait_for(160 * crashes)
        await doomed.process.kill()
    receiver.default = Answer()
    heir = await fleet.dispatcher()
    await receiver.wait_ids(set(posted), deadline=100)
    await fleet.settled()
    assert len(heir.lines("suspect_alone")) == 160


async def test_sigterm_under_load_finishes_and_hands_back(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    fleet = await fleets(valkey, dispatcher=MINUTE)
    ingest, leaving = await fleet.both()
    async with fleet.load(ingest):
        await fleet.flowing()
        staying = await fleet.dispatcher()
        assert await leaving.process.stop() == 0
        await fleet.flowing()
    await fleet.settled()
    fleet.assert_no_duplicates()
    assert not leaving.lines("drain_incomplete")
    assert await staying.metric("redispatch_reclaimed_total") == 0
    assert (await fleet.snapshot()).consumers == 1
    assert await staying.process.stop() == 0
    assert (await fleet.snapshot()).consumers == 0


async def test_sigterm_waits_for_what_was_sent_and_a_second_one_changes_nothing(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    gate = asyncio.Event()
    receiver.default = Answer(until=gate)
    fleet = await fleets(valkey, dispatcher=MINUTE, destination=HELD | {"max_in_flight": 4})
    ingest, leaving = await fleet.both()
    sent = await fleet.post(ingest, 4)
    await receiver.wait_for(4)
    waiting = await fleet.post(ingest, 4)
    leaving.process.signal(signal.SIGTERM)
    await leaving.process.wait_line('"event":"draining"')
    assert await leaving.status("/readyz") == 503
    assert await leaving.status("/healthz") == 200
    leaving.process.signal(signal.SIGTERM)
    assert await leaving.status("/healthz") == 200
    assert leaving.process.code is None
    gate.set()
    assert await leaving.process.wait_exit() == 0
    assert receiver.accepted.keys() == set(sent)
    assert (await fleet.snapshot()).ledger.delivered == 4
    await fleet.dispatcher()
    await receiver.wait_ids({*sent, *waiting})
    await fleet.settled()
    fleet.assert_no_duplicates()


async def test_what_is_not_done_in_time_is_left_to_another(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    receiver.answers.append(Answer(until=asyncio.Event()))
    fleet = await fleets(valkey, dispatcher={"drain_timeout": "200ms"})
    ingest, leaving = await fleet.both()
    [key] = await fleet.post(ingest)
    await receiver.wait_for(1)
    assert await leaving.process.stop() == 0
    assert leaving.lines("drain_incomplete")[0]["left"] == 1
    assert fleet.pending() == [(leaving.consumer, 1)]
    await fleet.dispatcher()
    await receiver.wait_ids({key})
    await fleet.settled()
    assert receiver.accepted == {key: 1}
    await fleet.wait_snapshot(lambda seen: seen.consumers == 1, "the consumer that left removed")


async def test_a_rolling_restart_loses_and_doubles_nothing(
    fleets: Fleets, pool: Pool, receiver: Receiver
) -> None:
    fleet = await fleets(pool.get("redis"), dispatcher=MINUTE)
    ingest, one, two = await asyncio.gather(fleet.ingest(), fleet.dispatcher(), fleet.dispatcher())
    async with fleet.load(ingest):
        for old in (one, two):
            await fleet.dispatcher()
            await fleet.flowing()
            assert await old.process.stop() == 0
        await fleet.flowing()
    await fleet.settled()
    fleet.assert_no_duplicates()
    assert (await fleet.snapshot()).consumers <= 2


async def test_delconsumer_by_hand_loses_nothing(fleets: Fleets, valkey: Server, receiver: Receiver) -> None:
    receiver.answers.append(Answer(until=asyncio.Event()))
    fleet = await fleets(valkey)
    ingest, doomed = await fleet.both()
    [key] = await fleet.post(ingest)
    await receiver.wait_for(1)
    await doomed.process.kill()
    assert valkey.cli("XGROUP", "DELCONSUMER", AT.stream, keys.GROUP, doomed.consumer) == 1
    finder = await fleet.dispatcher()
    await receiver.wait_ids({key})
    await fleet.settled()
    assert finder.lines("entries_unreachable")[0]["count"] == 1


async def test_delconsumer_of_a_living_one_doubles_nothing(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    gate = asyncio.Event()
    receiver.answers.append(Answer(until=gate))
    fleet = await fleets(valkey, destination=HELD)
    ingest, alive = await fleet.both()
    [key] = await fleet.post(ingest)
    await receiver.wait_for(1)
    assert valkey.cli("XGROUP", "DELCONSUMER", AT.stream, keys.GROUP, alive.consumer) == 1

    await eventually(lambda: fleet.pending() == [(alive.consumer, 1)], "the entry in the same hands again")
    gate.set()
    await fleet.settled()
    assert receiver.accepted == {key: 1}


async def test_consumers_of_the_dead_are_removed(fleets: Fleets, pool: Pool, receiver: Receiver) -> None:
    server = pool.get("redis")
    fleet = await fleets(server, dispatcher=MINUTE, destination=HELD)  # they leave each other what they have
    ingest, *doomed = await asyncio.gather(fleet.ingest(), *(fleet.dispatcher() for _ in range(3)))
    receiver.default = Answer(until=asyncio.Event())
    await fleet.post(ingest, 3 * 64)  # as much as all three can hold: each has a name in the group now
    await fleet.wait_snapshot(lambda seen: seen.in_flight == 3 * 64, "everything handed out")
    assert (await fleet.snapshot()).consumers == 3
    for running in doomed:
        await running.process.kill()
    for n in range(50):  # and those of earlier days
        server.cli("XGROUP", "CREATECONSUMER", AT.stream, keys.GROUP, f"pod-{n}")
    receiver.default = Answer()
    fleet.sections["dispatcher"] = {"visibility_timeout": "500ms"}
    await fleet.dispatcher()
    await fleet.settled()
    await fleet.wait_snapshot(lambda seen: seen.consumers <= 1, "only the living left in the group")


async def test_a_long_delivery_is_kept_alive(fleets: Fleets, valkey: Server, receiver: Receiver) -> None:
    gate = asyncio.Event()
    receiver.default = Answer(until=gate)
    fleet = await fleets(valkey, dispatcher={"visibility_timeout": "4s"}, destination=HELD)
    ingest, _, _ = await asyncio.gather(fleet.ingest(), fleet.dispatcher(), fleet.dispatcher())
    [key] = await fleet.post(ingest)
    await receiver.wait_for(1)
    before = fleet.calls("xclaim")

    await eventually(
        lambda: fleet.calls("xclaim") >= before + 5,
        "5 refreshments, 3 in a timeout",
    )
    assert [deliveries for _, deliveries in fleet.pending()] == [1]
    gate.set()
    await fleet.settled()
    assert [request.id for request in receiver.requests] == [key]

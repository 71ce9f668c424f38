"""One request for several alerts: gathered, settled together, split when refused, given back and survived."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.support.fleet import AT, Fleet, Fleets
from tests.support.receiver import Answer, Receiver, Request
from tests.support.servers import Server

LONG = "30m"  # nobody waits that long: the batch has to be full


def batch(**settings: Any) -> dict[str, Any]:
    return {"batch": {"max": 5, "wait": LONG} | settings, "retry": {"preset": "page", "base": "50ms"}}


def members(request: Request) -> list[str]:
    """The keys in a request, one or several."""
    data = request.json()["data"]
    return [each["key"] for each in data["alerts"]] if "alerts" in data else [data["key"]]


def refuses_batches(request: Request) -> Answer:
    """400 for several alerts, and for what comes from host-2."""
    keys = members(request)
    return Answer(400 if len(keys) > 1 or keys[0].startswith("host-2:") else 200)


async def delivered(fleet: Fleet, count: int) -> None:
    seen = await fleet.wait_snapshot(lambda seen: seen.depth == 0, "an empty queue")
    assert (seen.ledger.delivered, seen.ledger.lost, seen.in_flight) == (count, 0, 0)


async def test_a_full_batch_is_one_request_and_one_settlement(
    fleets: Fleets, server: Server, receiver: Receiver
) -> None:
    fleet = await fleets(server, destination=batch())
    ingest, dispatcher = await fleet.both()
    posted = await fleet.post(ingest, 10)
    requests = await receiver.wait_for(2)
    await delivered(fleet, 10)
    assert len(receiver.requests) == 2
    assert sorted(key for request in requests for key in members(request)) == sorted(posted)
    for request in requests:
        body = request.json()
        assert (body["type"], body["data"]["count"]) == ("alert.batch", 5)
        assert request.id.startswith("batch_")
        times = [each["timestamp"] for each in body["data"]["alerts"]]
        assert times == sorted(times)
    assert await dispatcher.wait_metric("redispatch_deliveries_total", 10, result="delivered") == 10


async def test_what_came_within_the_wait_goes_together(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    fleet = await fleets(valkey, destination=batch(wait="1s", max=100))
    ingest, _ = await fleet.both()
    posted = await fleet.post(ingest, 3)
    await delivered(fleet, 3)
    assert sorted(key for request in receiver.requests for key in members(request)) == sorted(posted)
    assert len(receiver.requests) < 3


async def test_only_alerts_that_agree_go_together(fleets: Fleets, valkey: Server, receiver: Receiver) -> None:
    fleet = await fleets(valkey, destination=batch(max=2, by=["name", "team"]))
    ingest, _ = await fleet.both()
    kinds = [("disk", "a"), ("disk", "b"), ("load", "a"), ("disk", "a"), ("load", "a"), ("disk", "b")]
    for number, (name, team) in enumerate(kinds):
        alert = {"host": f"host-{number}", "name": name, "labels": {"team": team}}
        assert (await fleet.send(ingest, alert))[0] == 201
    requests = await receiver.wait_for(3)
    await delivered(fleet, 6)
    together = [{(a["name"], a["labels"]["team"]) for a in r.json()["data"]["alerts"]} for r in requests]
    assert sorted(kind for group in together for kind in group) == sorted(set(kinds))


async def test_a_refused_batch_is_split_and_its_members_tried_unspent(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    receiver.default = refuses_batches
    fleet = await fleets(valkey, destination=batch())
    ingest, _ = await fleet.both()
    await fleet.post(ingest, 5)
    await receiver.wait_answered(6)
    seen = await fleet.wait_snapshot(lambda seen: seen.depth == 0, "an empty queue")
    assert (seen.ledger.delivered, seen.ledger.died) == (4, 1)
    [dead] = fleet.dead_letters()
    assert (dead["reason"], dead["status"], dead["attempts"]) == ("rejected", "400", "1")
    assert dead["key"].startswith("host-2:")
    alone = [request for request in receiver.requests if len(members(request)) == 1]
    assert [request.json()["data"]["attempt"] for request in alone] == [1] * 5


async def test_a_batch_that_fails_is_one_failure(fleets: Fleets, valkey: Server, receiver: Receiver) -> None:
    receiver.answers.append(Answer(500))
    fleet = await fleets(valkey, destination=batch() | {"breaker": {"failures": 2}})
    ingest, _ = await fleet.both()
    posted = await fleet.post(ingest, 5)
    await delivered(fleet, 5)
    assert set(posted) <= {key for request in receiver.requests[1:] for key in members(request)}
    tried = [each["attempt"] for r in receiver.requests[1:] for each in _data(r)]
    assert tried == [2] * 5


def _data(request: Request) -> list[dict[str, Any]]:
    data: dict[str, Any] = request.json()["data"]
    alerts: list[dict[str, Any]] = data.get("alerts", [data])
    return alerts


@pytest.mark.parametrize("rate", [{}, {"rate": "12/m"}], ids=["no rate", "with a rate"])
async def test_what_is_gathered_or_waits_for_its_turn_is_not_sent_behind_a_closed_gate(
    fleets: Fleets, valkey: Server, receiver: Receiver, rate: dict[str, Any]
) -> None:
    """The gate has some seconds to be closed in: the batch's wait, or the rate's."""
    fleet = await fleets(valkey, destination=batch(max=2, wait="4s") | rate)
    ingest, _ = await fleet.both()
    posted = await fleet.post(ingest, 2)
    await receiver.wait_for(1)
    posted += await fleet.post(ingest, 2 if rate else 1)
    await fleet.wait_snapshot(
        lambda seen: (seen.ledger.delivered, seen.in_flight) == (2, len(posted) - 2), "the rest in a replica"
    )
    assert valkey.cli("HSET", AT.gate, "state", "paused") == 1
    seen = await fleet.wait_snapshot(lambda seen: seen.in_flight == 0, "all given back")
    assert seen.depth == len(posted) - 2
    assert len(receiver.requests) == 1
    valkey.cli("DEL", AT.gate)
    await delivered(fleet, len(posted))
    assert {each["attempt"] for request in receiver.requests for each in _data(request)} == {1}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_what_is_gathered_outlives_its_replica(
    fleets: Fleets, valkey: Server, receiver: Receiver, how: signal.Signals
) -> None:
    fleet = await fleets(valkey, destination=batch())
    ingest, first = await fleet.both()
    posted = await fleet.post(ingest, 3)
    await fleet.wait_snapshot(lambda seen: seen.in_flight == 3, "three that are gathered")
    first.process.signal(how)
    await first.process.wait_exit()
    if how is signal.SIGTERM:
        seen = await fleet.snapshot()
        assert (seen.depth, seen.in_flight, seen.consumers) == (3, 0, 0)
    await fleet.dispatcher()
    posted += await fleet.post(ingest, 2)
    [request] = await receiver.wait_for(1)
    await delivered(fleet, 5)
    assert sorted(members(request)) == sorted(posted)

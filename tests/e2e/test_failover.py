"""Servers that take over from each other under load: what was acknowledged arrives, the ledger is exact."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, slot_of
from tests.support.fleet import AT, Fleets
from tests.support.receiver import Answer, Receiver, Request
from tests.support.sentinels import Sentinels
from tests.support.servers import Kind

REPLICATED = {"durability": "replicated", "replicas": 1}


@pytest.fixture
def sentinels(tmp_path: Path) -> Iterator[Callable[[Kind], Sentinels]]:
    """`sentinels("redis")`: a primary, two replicas, three sentinels."""
    made: list[Sentinels] = []

    def start(kind: Kind) -> Sentinels:
        made.append(Sentinels(kind, tmp_path / f"sentinels-{len(made)}"))
        return made[-1].start()

    yield start
    for each in made:
        each.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[[Kind], Cluster]]:
    """`cluster("redis")`: three primaries and their replicas."""
    made: list[Cluster] = []

    def start(kind: Kind) -> Cluster:
        made.append(Cluster(kind, tmp_path / f"cluster-{len(made)}", replicas=True, timeout=2000))
        return made[-1].start()

    yield start
    for each in made:
        each.close()


async def test_a_primary_that_is_killed(fleets: Fleets, sentinels: Callable[[Kind], Sentinels]) -> None:
    servers = await asyncio.to_thread(sentinels, "redis")
    fleet = await fleets(servers, ingest=REPLICATED)
    ingest, dispatcher = await fleet.both()
    async with fleet.load(ingest):
        await fleet.flowing()
        servers.primary().kill()
        await ingest.wait_metric("redispatch_redis_errors_total", 1)
        await fleet.flowing()
    await fleet.settled()
    assert (ingest.process.code, dispatcher.process.code) == (None, None)


def not_at_first(request: Request, come: Counter[str]) -> Answer:
    """Every fourth delivery has to come twice."""
    come[request.id] += 1
    return Answer(503 if come[request.id] == 1 and len(come) % 4 == 0 else 200)


async def test_a_cluster_whose_slots_move_and_whose_servers_go(
    fleets: Fleets, receiver: Receiver, cluster: Callable[[Kind], Cluster]
) -> None:
    """The destination's slot, under load: moved both ways, handed to the replica, left without its server."""
    receiver.default = partial(not_at_first, come=Counter())
    servers = await asyncio.to_thread(cluster, "valkey")
    fleet = await fleets(servers, ingest=REPLICATED)
    ingest, dispatcher = await fleet.both()
    slot = slot_of(AT.stream)
    async with fleet.load(ingest):
        await fleet.flowing()
        source = servers.owner(slot)
        between, target = (node for node in servers.primaries() if node is not source)
        await asyncio.to_thread(servers.move_at_once, slot, between)
        await fleet.flowing()
        await asyncio.to_thread(servers.move, slot, target)
        await fleet.flowing()
        took_over = await asyncio.to_thread(servers.fail_over, target)
        await fleet.flowing()
        took_over.kill()
        await asyncio.to_thread(
            servers.wait, lambda: servers.owner(slot) is target, "it is back where it was", 60
        )
        await asyncio.to_thread(took_over.restart)  # else there is no replica, and nothing is acknowledged
        await fleet.flowing()
    await fleet.settled()
    assert (ingest.process.code, dispatcher.process.code) == (None, None)

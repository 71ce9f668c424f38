"""Servers that take over from each other under load: what was acknowledged arrives, the ledger is exact."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.fleet import Fleets
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

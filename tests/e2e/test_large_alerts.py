"""Large alerts through real processes: sent whole, nothing left behind, also when both are killed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from common.keys import Destination
from tests.support.fleet import NAME, NAMESPACE, Fleet, Fleets, Running, eventually
from tests.support.s3 import running
from tests.support.servers import Server

AT = Destination(NAMESPACE, NAME)
TEXT = "x" * 100_000


def large(fleet: Fleet) -> dict[str, Any]:
    """One more."""
    return fleet.alert() | {"summary": TEXT[:2000], "annotations": {"log": TEXT[:60_000]}}


def objects(directory: Path) -> set[str]:
    """Those that there are."""
    return {each.name for each in directory.rglob("*") if each.is_file()}


def listed(fleet: Fleet) -> set[str]:
    """Those that are referred to."""
    return set(fleet.server.cli("SMEMBERS", AT.objects))


async def test_sent_whole_and_nothing_left(fleets: Fleets, valkey: Server, tmp_path: Path) -> None:
    fleet = await fleets(valkey, objects={"url": str(tmp_path / "objects")})
    ingest, dispatcher = await fleet.both()
    for _ in range(5):
        assert (await fleet.send(ingest, large(fleet)))[0] == 201
        await fleet.post(ingest)
    await fleet.settled()
    bodies = [request.json()["data"] for request in fleet.receiver.requests]
    assert sorted(len(told["annotations"].get("log", "")) for told in bodies) == [0] * 5 + [60_000] * 5
    await eventually(lambda: not objects(tmp_path / "objects"), "all objects erased")
    assert listed(fleet) == set()
    assert dispatcher.lines("objects_away") == []


async def test_a_store_that_is_away_and_comes_back(fleets: Fleets, valkey: Server, tmp_path: Path) -> None:
    directory = tmp_path / "objects"
    fleet = await fleets(valkey, objects={"url": str(directory)})
    ingest = await fleet.ingest()
    assert (await fleet.send(ingest, large(fleet)))[0] == 201
    directory.rename(tmp_path / "elsewhere")
    dispatcher = await fleet.dispatcher()
    await eventually(lambda: dispatcher.lines("objects_away"), "it is said")
    directory.write_text("not a directory")
    alert = large(fleet)
    status, told = await fleet.send(ingest, alert)
    assert (status, "object store" in told["detail"]) == (503, True)
    await fleet.post(ingest)
    await fleet.receiver.wait_for(1)
    await fleet.wait_snapshot(lambda seen: seen.ledger.delivered == 1, "the small one delivered")
    directory.unlink()
    (tmp_path / "elsewhere").rename(directory)
    await fleet.insist(ingest, alert)
    await fleet.settled()
    await eventually(lambda: not objects(directory), "all objects erased")
    assert fleet.receiver.accepted.total() == 3


async def test_both_are_killed_again_and_again(fleets: Fleets, valkey: Server, tmp_path: Path) -> None:
    directory = tmp_path / "objects"
    fleet = await fleets(valkey, objects={"url": str(directory)})

    async def insist(ingest: Running, alert: dict[str, Any]) -> None:
        await fleet.insist(ingest, alert)

    for _ in range(4):
        ingest, dispatcher = await fleet.both()
        posting = [asyncio.create_task(insist(ingest, large(fleet))) for _ in range(20)]
        await fleet.flowing(5)
        await asyncio.gather(ingest.process.kill(), dispatcher.process.kill())
        for task in posting:
            task.cancel()
        await asyncio.gather(*posting, return_exceptions=True)
    assert listed(fleet) <= objects(directory)
    await fleet.dispatcher()
    await fleet.wait_snapshot(lambda seen: seen.depth == 0, "an empty queue")
    assert fleet.acknowledged <= fleet.receiver.accepted.keys()
    assert fleet.dead_letters() == []
    await eventually(lambda: not listed(fleet), "nothing referred to")


async def test_in_a_bucket(fleets: Fleets, valkey: Server) -> None:
    with running() as s3:
        url = s3.bucket()
        fleet = await fleets(valkey, objects={"url": f"{url}/large"})
        ingest = await fleet.ingest(env=s3.environment)
        for _ in range(10):
            assert (await fleet.send(ingest, large(fleet)))[0] == 201
        assert len(listed(fleet)) == s3.count(url) == 10
        dispatcher = await fleet.dispatcher(env=s3.environment)
        await fleet.settled()
        assert {len(told.json()["data"]["annotations"]["log"]) for told in fleet.receiver.requests} == {
            60_000
        }
        await eventually(lambda: s3.count(url) == 0, "all objects erased")
        assert await dispatcher.process.stop() == 0

"""What an operator does with both services running: pause, resume, replay, discard; the ledger is exact."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.books import Book, link
from tests.support.fleet import AT, NAME, Fleet, Fleets
from tests.support.processes import ROOT
from tests.support.receiver import Answer, Receiver
from tests.support.servers import Server

REPLAY = ROOT / "ops" / "lua" / "replay.lua"


async def redispatch(fleet: Fleet, *words: str) -> Any:
    """What the command prints as JSON; its exit code is 0."""
    process = await fleet.processes.redispatch(*words, config=fleet.config())
    assert await process.wait_exit() == 0, process.text
    return json.loads("\n".join(process.out)) if "--json" in words else process.out


async def by_command(fleet: Fleet) -> None:
    told = await redispatch(fleet, "dead", "replay", "--reason", "rejected", "--json")
    assert told["replayed"] == 3


async def by_redis_cli(fleet: Fleet) -> None:
    if shutil.which("redis-cli") is None:
        pytest.skip("no redis-cli on this machine; test_ops_redis_cli.py fails for it where it must not")
    keys = [AT.stream, AT.dead, AT.ledger, AT.retry]
    process = await fleet.processes.start(
        *("redis-cli", "-u", fleet.server.url, "--eval", str(REPLAY), *keys, ",", "reason=rejected")
    )
    assert await process.wait_exit() == 0
    assert process.out[:2] == ["3", "0"]


@pytest.mark.parametrize("replay", [by_command, by_redis_cli])
async def test_what_died_is_replayed_and_arrives(
    fleets: Fleets, server: Server, receiver: Receiver, replay: Any
) -> None:
    receiver.answers.extend([Answer(422)] * 3)
    fleet = await fleets(server)
    ingest, _ = await fleet.both()
    posted = await fleet.post(ingest, 3)
    await fleet.wait_snapshot(lambda seen: seen.dead_letters == 3, "three dead letters")
    listed = await redispatch(fleet, "dead", "list", "--json")
    assert {(one["key"], one["reason"], one["status"]) for one in listed} == {
        (key, "rejected", 422) for key in posted
    }
    await replay(fleet)
    await receiver.wait_ids(set(posted))
    seen = await fleet.wait_snapshot(lambda seen: seen.ledger.delivered == 3, "three deliveries")
    assert (seen.depth, seen.dead_letters, seen.ledger.replayed) == (0, 0, 3)
    assert len(receiver.requests) == 6
    await redispatch(fleet, "ledger")


async def test_nothing_is_sent_while_paused(fleets: Fleets, valkey: Server, receiver: Receiver) -> None:
    fleet = await fleets(valkey)
    ingest, _ = await fleet.both()
    await redispatch(fleet, "pause", NAME, "--reason", "moving")
    posted = await fleet.post(ingest, 5)
    seen = (await redispatch(fleet, "status", "--json"))["destinations"][0]
    assert (seen["depth"], seen["gate"]["state"], seen["gate"]["reason"]) == (5, "paused", "moving")
    assert receiver.requests == []
    [told] = await redispatch(fleet, "resume", NAME)
    assert told.startswith(f"{NAME} is open again (it was paused since 20")
    assert told.endswith("Z (moving)): 5 deliveries wait")
    await receiver.wait_ids(set(posted))
    await fleet.settled()


async def test_what_was_delivered_meanwhile_is_sent_with_force_only(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    fleet = await fleets(valkey)
    ingest, _ = await fleet.both()
    [key] = await fleet.post(ingest)
    await fleet.settled()
    with link(valkey) as client:
        alert = receiver_alert(key)
        Book(client, NAME).die(key=key, alert=alert)
        await redispatch(fleet, "dead", "replay")
        await fleet.wait_snapshot(lambda seen: seen.ledger.duplicate == 1, "a duplicate")
        assert len(receiver.requests) == 1
        Book(client, NAME).die(key=key, alert=alert)
        await redispatch(fleet, "dead", "replay", "--force")
        await receiver.wait_for(2)
        await fleet.wait_snapshot(lambda seen: seen.ledger.delivered == 2, "a second delivery")


def receiver_alert(key: str) -> bytes:
    """An alert as it is stored."""
    return json.dumps(
        {"key": key, "incident": "host-1:disk", "host": "host-1", "name": "disk", "timestamp": 1, "v": 1}
    ).encode()


async def test_replayed_and_discarded_by_two_at_once(
    fleets: Fleets, valkey: Server, receiver: Receiver, tmp_path: Path
) -> None:
    """Each dead letter is moved by one of them."""
    fleet = await fleets(valkey)
    with link(valkey) as client:
        book = Book(client, NAME)
        book.die(2000)
        told = await asyncio.gather(
            redispatch(fleet, "dead", "replay", "--json"),
            redispatch(fleet, "dead", "replay", "--json"),
            redispatch(fleet, "dead", "discard", "--yes", "--json"),
        )
        assert sum(one.get("replayed", 0) + one.get("discarded", 0) for one in told) == 2000
        assert len(book.entries()) == sum(one.get("replayed", 0) for one in told)
        assert book.dead() == []
        assert book.unaccounted() == (0, 0)

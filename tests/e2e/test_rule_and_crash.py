"""An ingest process that dies between a rule's state and its alert: the sender's next reading brings it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from common.scripts import Script
from tests.support.fleet import Fleets, Running
from tests.support.proxy import Proxy
from tests.support.receiver import Receiver
from tests.support.servers import Server

DISK = {"name": "disk-full", "metric": "disk", "when": ">= 100", "clear": "< 90"}
FIRST = 1_772_439_277_000  # ms
FIRES, CLEARS = 100, 80


def reading(value: int, minute: int) -> dict[str, Any]:
    """Of one disk, so many minutes after the first."""
    return {"host": "h", "metric": "disk", "value": value, "timestamp": FIRST + minute * 60_000}


async def send(ingest: Running, told: dict[str, Any]) -> list[str]:
    """The keys of the alerts that a reading made."""
    async with ingest.http.post(ingest.url + "/v1/readings", json=told) as answer:
        assert answer.status == 201, await answer.text()
        return [alert["key"] for alert in (await answer.json())["alerts"]]


async def die_between(ingest: Running, proxy: Proxy, told: dict[str, Any]) -> None:
    """Post a reading whose rule changes its state, and kill ingest before it can have learnt of that."""
    proxy.lose_reply(Script("ingest", "evaluate").digest.encode())
    posting = asyncio.create_task(send(ingest, told))
    await proxy.wait_lost()
    await ingest.process.kill()
    with pytest.raises((aiohttp.ClientConnectionError, AssertionError)):  # nothing, or a 503
        await posting


@pytest.mark.parametrize("next_minute", [1, 2], ids=["the same reading again", "the next one"])
@pytest.mark.parametrize("status", ["firing", "resolved"])
async def test_neither_state_nor_alert_is_lost(
    fleets: Fleets,
    valkey: Server,
    receiver: Receiver,
    proxied: Callable[[Server], Proxy],
    status: str,
    next_minute: int,
) -> None:
    proxy = await proxied(valkey).start()
    fleet = await fleets(valkey, through=proxy.url, rules=[DISK])
    doomed, _ = await fleet.both()
    before, value = (FIRES, CLEARS) if status == "resolved" else (CLEARS, FIRES)
    keys = set(await send(doomed, reading(before, 0)))
    await die_between(doomed, proxy, reading(value, 1))
    heir = await fleet.ingest()
    [key] = await send(heir, reading(value, next_minute))
    began = FIRST if status == "resolved" else FIRST + 60_000  # as the reading said that was not answered
    assert key == f"h:disk-full:{began}" + (":resolved" if status == "resolved" else "")
    assert await send(heir, reading(value, next_minute)) == [key]
    await receiver.wait_ids({*keys, key})
    await fleet.settled()
    assert receiver.accepted == dict.fromkeys({*keys, key}, 1)

"""`redispatch agent` as a process against a real ingest."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from hashlib import sha256
from typing import Any

from tests.support.fleet import Fleet, Fleets, eventually
from tests.support.processes import Process
from tests.support.receiver import Receiver
from tests.support.servers import Server, free_port

READINGS = "{redispatch:readings}:stream"
TOKEN = "a-token-of-an-agent"
RULE = {"name": "disk-full", "metric": "disk", "when": ">= 0", "summary": "{host} {path} at {value}%"}


async def fleet_of(fleets: Fleets, server: Server, **sections: Any) -> tuple[Fleet, str]:
    listen = f"127.0.0.1:{free_port()}"
    return await fleets(server, ingest={"listen": listen}, rules=[RULE], **sections), f"http://{listen}"


async def agent(fleet: Fleet, *words: str, token: str | None = None) -> Process:
    env = {} if token is None else {"REDISPATCH_TOKEN": token}
    return await fleet.processes.redispatch("agent", "--host", "me", *words, config=fleet.config(), env=env)


def readings(fleet: Fleet) -> list[dict[str, str]]:
    told = fleet.server.cli("XRANGE", READINGS, "-", "+")
    return [dict(zip(flat[::2], flat[1::2], strict=True)) for _, flat in told]


async def test_once_becomes_an_alert(fleets: Fleets, valkey: Server, receiver: Receiver) -> None:
    fleet, _ = await fleet_of(fleets, valkey)
    await fleet.both()
    once = await agent(fleet, "--once", "--disk", "/")
    assert await once.wait_exit() == 0
    assert [one["metric"] for one in readings(fleet)] == ["disk", "memory", "load"]
    await receiver.wait_for(1)
    data = json.loads(receiver.requests[0].body)["data"]
    assert (data["host"], data["name"], data["labels"]) == ("me", "disk-full", {"path": "/"})
    assert once.text == ""


async def test_it_waits_for_ingest_and_loses_nothing(fleets: Fleets, valkey: Server) -> None:
    fleet, url = await fleet_of(fleets, valkey)
    running = await agent(fleet, "--interval", "200ms")
    await running.wait_line(f"readings go to {url} every 200ms")
    await running.wait_line("can't be reached .*refused.*; readings wait here")
    before = time.time_ns() // 1_000_000
    await fleet.ingest()
    await running.wait_line("takes readings again; 0 were dropped")
    assert await running.stop() == 0
    told = readings(fleet)
    times = Counter(int(one["timestamp"]) for one in told)
    assert min(times) <= before  # measured while ingest was away
    assert set(times.values()) == {3}


async def test_a_wrong_token_is_told_and_a_right_one_works(fleets: Fleets, valkey: Server) -> None:
    token = {"name": "agents", "sha256": sha256(TOKEN.encode()).hexdigest()}
    fleet, _ = await fleet_of(fleets, valkey, tokens=[token])
    await fleet.ingest()
    wrong = await agent(fleet, "--interval", "1s", token="other")
    await wrong.wait_line("answers 401")
    wrong.signal(signal.SIGINT)
    assert await wrong.wait_exit() == 0
    assert "readings were not sent" in wrong.text
    assert readings(fleet) == []
    assert await (await agent(fleet, "--once", token=TOKEN)).wait_exit() == 0
    await eventually(lambda: len(readings(fleet)) == 3, "three readings")
    wrong.assert_no_traceback()


async def test_wrong_options_are_one_line(fleets: Fleets, valkey: Server) -> None:
    fleet, _ = await fleet_of(fleets, valkey)
    for words, told in (
        (("--interval", "0"), "--interval"),
        (("--interval", "often"), "expected a duration"),
        (("--disk", "/nowhere", "--once"), "none of them is there"),
        (("--url", "ftp://x"), "no http:// or https:// address"),
    ):
        process = await agent(fleet, *words)
        assert await process.wait_exit() == 2
        assert told in process.text
        process.assert_no_traceback()

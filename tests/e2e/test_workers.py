"""Several ingest processes on one address: killed under load, reloaded, drained, counted as one."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import yaml

from ingest.supervise import STEADY
from tests.support.fleet import Fleet, Fleets, Running, eventually
from tests.support.processes import Process, Processes
from tests.support.receiver import Receiver
from tests.support.servers import Server, free_port

COUNT = 3
POSTED = "redispatch_ingest_requests_total"


async def fleet_of(fleets: Fleets, server: Server, **ingest: Any) -> tuple[Fleet, Running]:
    """A fleet whose ingest is COUNT processes, all of which have seen Redis. No connection is used twice."""
    listen = f"127.0.0.1:{free_port()}"
    fleet = await fleets(server, ingest={"listen": listen, "workers": COUNT, **ingest})
    process = await fleet.processes.ingest(fleet.config())
    fleet.http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
    running = await fleet.listening(process, None)
    await seen_redis(running, COUNT)
    return fleet, running


@asynccontextmanager
async def several(fleets: Fleets, server: Server, **ingest: Any) -> AsyncIterator[tuple[Fleet, Running]]:
    fleet, running = await fleet_of(fleets, server, **ingest)
    async with fleet.http:
        yield fleet, running


async def seen_redis(running: Running, times: int) -> None:
    await eventually(lambda: len(running.lines("redis_seen")) >= times, f"redis_seen {times} times")


def workers(running: Running) -> list[psutil.Process]:
    """The oldest first."""
    return sorted(psutil.Process(running.process.pid).children(), key=psutil.Process.create_time)


async def kill_one(running: Running, place: int = 0) -> None:
    """SIGKILL; another is in its place when this returns."""
    before = len(running.lines("redis_seen"))
    workers(running)[place].kill()
    await seen_redis(running, before + 1)
    assert len(workers(running)) == COUNT


async def exposition(running: Running) -> str:
    async with running.http.get(running.url + "/metrics") as answer:
        return await answer.text()


async def test_whoever_is_asked_tells_of_all(fleets: Fleets, valkey: Server) -> None:
    async with several(fleets, valkey) as (fleet, ingest):
        await fleet.post(ingest, 60)
        for _ in range(10):
            assert await ingest.metric(POSTED, route="/v1/alerts", code="201") == 60
            assert await ingest.metric("redispatch_alerts_total", outcome="queued") == 60
            count = await ingest.metric("redispatch_ingest_request_seconds_count", route="/v1/alerts")
            assert count == 60
            buckets = "redispatch_ingest_request_seconds_bucket"
            assert await ingest.metric(buckets, route="/v1/alerts", le="+Inf") == 60
            assert await ingest.metric("redispatch_append_batch_size_sum") == 60
            assert await ingest.metric("redispatch_ingest_workers") == COUNT
            assert await ingest.metric("redispatch_redis_unsafe", kind="no_aof") == 1  # not three times
        assert await ingest.process.stop() == 0
        assert [line["service"] for line in ingest.lines("stopping")] != []


async def test_a_worker_killed_under_load_loses_nothing_and_comes_back(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    async with several(fleets, valkey) as (fleet, ingest):
        await fleet.dispatcher()
        seen: list[float] = []
        over = asyncio.Event()

        async def watch() -> None:
            while not over.is_set():
                try:
                    seen.append(await ingest.metric("redispatch_alerts_total", outcome="queued"))
                except aiohttp.ClientError:  # asked the one that was just killed
                    continue

        watching = asyncio.create_task(watch())
        async with fleet.load(ingest):
            await fleet.flowing()
            for place in (0, 1):
                await kill_one(ingest, place)
                await fleet.flowing()
        over.set()
        await watching
        await fleet.settled()
        assert seen == sorted(seen)  # no sum ever fell
        assert seen[-1] > 100
        # What each of the four senders had under way at a kill may have been stored and not counted.
        queued = await ingest.metric("redispatch_alerts_total", outcome="queued")
        assert len(fleet.acknowledged) - 2 * 4 <= queued <= len(fleet.acknowledged)
        assert await ingest.metric("redispatch_ingest_worker_deaths_total") == 2
        assert await ingest.metric("redispatch_ingest_workers") == COUNT
        assert [line["how"] for line in ingest.lines("worker_died")] == ["SIGKILL", "SIGKILL"]


async def test_deaths_leave_no_series_and_one_that_dies_again_waits_longer(
    fleets: Fleets, valkey: Server
) -> None:
    began = time.monotonic()
    async with several(fleets, valkey) as (_, ingest):
        before = await exposition(ingest)
        for place in (0, -1, -1):  # one, and twice who came in its place
            await kill_one(ingest, place)
        took = time.monotonic() - began
        await eventually(lambda: len(ingest.lines("worker_died")) == 3, "three deaths")
        lines = (await exposition(ingest)).splitlines()
        assert [line.split()[:3] for line in lines if line.startswith("#")] == [
            line.split()[:3] for line in before.splitlines() if line.startswith("#")
        ]
        assert len(lines) == len(before.splitlines())
        died = [(line["worker"], line["again_in"]) for line in ingest.lines("worker_died")]
        assert len({worker for worker, _ in died}) == 1
        if took < STEADY:  # else one of them may have lived for long enough to begin anew
            assert [pause for _, pause in died] == [0.2, 0.4, 0.8]


async def test_requests_under_way_are_answered_before_the_end(fleets: Fleets, valkey: Server) -> None:
    async with several(fleets, valkey) as (_, ingest):
        host, _, port = ingest.url.removeprefix("http://").rpartition(":")
        wires = [await asyncio.open_connection(host, int(port)) for _ in range(12)]
        for n, (_, writer) in enumerate(wires):
            body = json.dumps({"host": f"h{n}", "name": "n"}).encode()
            writer.write(b"POST /v1/alerts HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % len(body))
            writer.write(b"Expect: 100-continue\r\nContent-Type: application/json\r\n\r\n")
            assert b"100" in await wires[n][0].readuntil(b"\r\n\r\n")  # its head was read by now
        ingest.process.signal(signal.SIGTERM)
        await eventually(lambda: len(ingest.lines("stopping")) == COUNT, "all are stopping")
        for n, (reader, writer) in enumerate(wires):
            writer.write(json.dumps({"host": f"h{n}", "name": "n"}).encode())
            assert (await reader.read()).startswith(b"HTTP/1.1 201 ")
            writer.close()
        assert await ingest.process.wait_exit() == 0


async def test_they_end_with_a_supervisor_that_is_killed(fleets: Fleets, valkey: Server) -> None:
    async with several(fleets, valkey) as (_, ingest):
        await ingest.process.kill()
        await ingest.process.wait_closed()  # nobody writes there any more


def add_destination(file: Path, name: str) -> None:
    told = yaml.safe_load(file.read_text())
    told["destinations"].append({"name": name, "type": "discard"})
    told["routes"][0]["to"].append(name)
    file.write_text(yaml.safe_dump(told))


def changed(ingest: Running, what: str) -> list[dict[str, Any]]:
    """The lines of those that have taken it; one that looks again says that nothing has changed."""
    return [line for line in ingest.lines("config_reloaded") if what in line["changes"]]


async def destinations(fleet: Fleet, ingest: Running) -> set[tuple[str, ...]]:
    """What some alerts are answered, over connections of their own."""
    told = set()
    for _ in range(8 * COUNT):
        async with ingest.http.post(ingest.url + "/v1/alerts", json=fleet.alert()) as answer:
            told.add(tuple((await answer.json())["destinations"]))
    return told


async def test_all_take_a_changed_configuration_and_so_does_one_that_comes_later(
    fleets: Fleets, valkey: Server
) -> None:
    async with several(fleets, valkey) as (fleet, ingest):
        file = fleet.processes.directory / "redispatch.yaml"
        add_destination(file, "second")
        ingest.process.signal(signal.SIGHUP)
        await eventually(lambda: len(changed(ingest, "destinations.second added")) == COUNT, "all have it")
        assert await destinations(fleet, ingest) == {("hook", "second")}
        await kill_one(ingest)
        assert await destinations(fleet, ingest) == {("hook", "second")}
        # One that starts while the file is broken works with what the others began with, and says so.
        good = file.read_text()
        file.write_text("nonsense: [")
        await kill_one(ingest)
        await ingest.wait_metric("redispatch_config_reload_failed", 1)
        file.write_text(good)
        ingest.process.signal(signal.SIGHUP)

        async def mended() -> bool:
            return await ingest.metric("redispatch_config_reload_failed") == 0

        await eventually(mended, "a good configuration")
        assert await destinations(fleet, ingest) == {("hook", "second")}


def config(processes: Processes, server: Server, listen: str) -> Path:
    return processes.config(
        {
            "redis": {"url": server.url},
            "ingest": {"listen": listen, "workers": 2},
            "destinations": [{"name": "sink", "type": "discard"}],
        }
    )


async def refused(process: Process, *words: str) -> None:
    assert await process.wait_exit() == 1
    assert all(word in process.text for word in words), process.text
    process.assert_no_traceback()


async def test_a_server_that_cannot_be_used_ends_them(processes: Processes, valkey: Server) -> None:
    valkey.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    file = config(processes, valkey, f"127.0.0.1:{free_port()}")
    await refused(await processes.ingest(file), "noeviction")


async def test_an_address_is_taken_even_by_others_who_share_theirs(
    processes: Processes, valkey: Server
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    first = await processes.ingest(config(processes, valkey, listen))
    await first.wait_line("redis_seen")
    await refused(
        await processes.ingest(config(processes, valkey, listen)), listen, "in use", "ingest.listen"
    )
    await refused(await processes.ingest(config(processes, valkey, "nonsense")), "ingest.listen")
    single = await processes.ingest(config(processes, valkey, listen), {"REDISPATCH_INGEST_WORKERS": "1"})
    await refused(single, listen, "in use")
    assert await first.stop() == 0

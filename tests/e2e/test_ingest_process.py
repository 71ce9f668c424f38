"""`python -m ingest` as a process: starting, refusing to start, losing Redis, ending."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.fleet import eventually
from tests.support.processes import Process, Processes, wait_ready
from tests.support.servers import Server, free_port

ALERT = {"host": "web-1", "name": "disk-full"}


def config(processes: Processes, redis: str, timeout: str = "10s", **ingest: Any) -> tuple[Path, str]:
    """A configuration file with the time that Redis has to answer, and where ingest will listen."""
    listen = ingest.setdefault("listen", f"127.0.0.1:{free_port()}")
    made = processes.config(
        {
            "redis": {"url": redis, "timeout": timeout},
            "ingest": ingest,
            "destinations": [{"name": "sink", "type": "discard"}],
            "routes": [{"to": ["sink"]}],
            "hooks": [{"name": "other", "alert": {"host": "host", "name": "name"}}],
        }
    )
    return made, f"http://{listen}"


async def post(session: aiohttp.ClientSession, url: str, body: Any = None) -> int:
    async with session.post(f"{url}/v1/alerts", json=body or ALERT) as answer:
        return answer.status


async def stored(session: aiohttp.ClientSession, url: str, host: str) -> bool:
    """Whether an alert of that host was taken; else Redis did not answer in time."""
    status = await post(session, url, {**ALERT, "host": host})
    assert status in (200, 201, 503)
    return status != 503


async def running(processes: Processes, server: Server, timeout: str = "10s") -> tuple[Process, str]:
    file, url = config(processes, server.url, timeout)
    process = await processes.ingest(file)
    await wait_ready(f"{url}/readyz", process)
    return process, url


async def test_it_serves_and_ends_cleanly(processes: Processes, valkey: Server) -> None:
    process, url = await running(processes, valkey)
    async with aiohttp.ClientSession() as session:
        assert await post(session, url) == 201
        async with session.get(f"{url}/metrics") as answer:
            text = await answer.text()
    assert 'redispatch_redis_unsafe{kind="no_aof"} 1.0' in text
    assert "redispatch_append_batch_size_count 1.0" in text
    assert await process.stop() == 0
    process.assert_no_traceback()


async def test_a_taken_port_ends_it(processes: Processes, valkey: Server) -> None:
    _, url = await running(processes, valkey)
    file, _ = config(processes, valkey.url, listen=url.removeprefix("http://"))
    second = await processes.ingest(file)
    assert await second.wait_exit() == 1
    assert "in use" in second.text
    assert "ingest.listen" in second.text
    second.assert_no_traceback()


async def test_a_broken_configuration_ends_it(processes: Processes) -> None:
    process = await processes.ingest(processes.config({"ingest": {"listen": 5}, "unknown": 1}))
    assert await process.wait_exit() == 1
    assert "ingest.listen" in process.text
    assert "unknown" in process.text
    process.assert_no_traceback()


async def test_an_evicting_server_ends_it(processes: Processes, valkey: Server) -> None:
    valkey.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    file, _ = config(processes, valkey.url)
    process = await processes.ingest(file)
    assert await process.wait_exit() == 1
    assert "noeviction" in process.text
    process.assert_no_traceback()


async def test_without_redis_it_answers_503_and_gives_up(processes: Processes) -> None:
    file, url = config(processes, f"redis://127.0.0.1:{free_port()}/0")
    process = await processes.ingest(file)
    await process.wait_line("listening")
    async with aiohttp.ClientSession() as session:
        assert await post(session, url) == 503
        async with session.post(f"{url}/v1/hooks/other", json=ALERT) as answer:
            assert answer.status == 503
        async with session.get(f"{url}/readyz") as ready, session.get(f"{url}/healthz") as healthy:
            assert (ready.status, healthy.status) == (503, 200)
    assert await process.wait_exit() == 1
    assert "REDISPATCH_REDIS_URL" in process.text
    process.assert_no_traceback()


async def test_sigterm_ends_the_wait_for_redis(processes: Processes) -> None:
    file, _ = config(processes, f"redis://127.0.0.1:{free_port()}/0")
    process = await processes.ingest(file)
    await process.wait_line("listening")
    assert await process.stop() == 0  # 1 if it had waited to the end


@pytest.mark.parametrize("frozen", [True, False])
async def test_a_redis_that_goes_is_503_and_one_that_is_back_is_used(
    processes: Processes, new_server: Any, frozen: bool
) -> None:
    server: Server = new_server()
    process, url = await running(processes, server, "600ms")
    async with aiohttp.ClientSession() as session:

        async def refused_in_time() -> bool:
            """In two seconds, as is promised; again where the machine has kept it from that."""
            began = time.monotonic()
            assert await post(session, url) == 503
            return time.monotonic() - began < 2

        await eventually(lambda: stored(session, url, "web-1"), "an alert that is stored")
        if frozen:
            server.freeze()
        else:
            server.kill()
        await eventually(refused_in_time, "503 within two seconds")
        assert '"kind":"' in await process.wait_line("redis_trouble")
        async with session.get(f"{url}/readyz") as ready:
            assert ready.status == 200
        if frozen:
            server.thaw()
        else:
            server.restart()
        await eventually(lambda: stored(session, url, "web-2"), "an alert that is stored again")
    assert await process.stop() == 0
    process.assert_no_traceback()


async def test_a_request_under_way_is_answered_before_the_end(processes: Processes, valkey: Server) -> None:
    process, url = await running(processes, valkey)
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps(ALERT).encode()
    head = ["POST /v1/alerts HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", "", ""]
    writer.write("\r\n".join(head).encode() + body[:5])
    await writer.drain()
    async with aiohttp.ClientSession() as session:
        assert await post(session, url, {**ALERT, "host": "web-2"}) == 201  # the other's head was read by now
    process.signal(signal.SIGTERM)
    await process.wait_line("stopping")
    writer.write(body[5:])
    async with asyncio.timeout(30):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 201 ")
    assert b"Connection: close" in answer
    writer.close()
    assert await process.wait_exit() == 0

"""`python -m ingest` as a process: starting, refusing to start, losing Redis, ending."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.processes import Process, Processes, wait_ready
from tests.support.servers import Server, free_port

ALERT = {"host": "web-1", "name": "disk-full"}


def config(processes: Processes, redis: str, **ingest: Any) -> tuple[Path, str]:
    """A configuration file, and where ingest will listen."""
    listen = ingest.setdefault("listen", f"127.0.0.1:{free_port()}")
    made = processes.config(
        {
            "redis": {"url": redis, "timeout": "600ms"},
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


async def running(processes: Processes, server: Server) -> tuple[Process, str]:
    file, url = config(processes, server.url)
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
    assert await process.stop(5) == 0


@pytest.mark.parametrize("frozen", [True, False])
async def test_a_redis_that_goes_is_503_and_one_that_is_back_is_used(
    processes: Processes, new_server: Any, frozen: bool
) -> None:
    server: Server = new_server()
    process, url = await running(processes, server)
    async with aiohttp.ClientSession() as session:
        assert await post(session, url) == 201
        if frozen:
            server.freeze()
        else:
            server.kill()
        async with asyncio.timeout(2):
            assert await post(session, url) == 503
        assert '"kind":"' in await process.wait_line("redis_trouble")
        async with session.get(f"{url}/readyz") as ready:
            assert ready.status == 200
        if frozen:
            server.thaw()
        else:
            server.restart()
        async with asyncio.timeout(30):
            while await post(session, url, {**ALERT, "host": "web-2"}) == 503:
                pass
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

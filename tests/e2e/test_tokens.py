"""Tokens with real processes: a rate for the whole fleet, another configuration, and a burst."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from common import keys
from common.scripts import Script
from tests.support.fleet import PATIENCE
from tests.support.processes import Processes, wait_ready
from tests.support.proxy import Proxy
from tests.support.servers import Server, free_port

NOW = int(time.time())  # a repeat without a time of its own may fall into another window
PROMETHEUS = [{"labels": {"alertname": "x", "host": "h"}, "startsAt": "2026-03-02T08:00:00Z"}]


def token(text: str, **more: Any) -> dict[str, Any]:
    return {"name": text, "sha256": hashlib.sha256(text.encode()).hexdigest(), **more}


def config(
    processes: Processes, redis: str, listen: str, *tokens: dict[str, Any], name: str = "redispatch.yaml"
) -> Path:
    content = {
        "redis": {"url": redis, "timeout": PATIENCE},
        "ingest": {"listen": listen},
        "tokens": list(tokens),
        "destinations": [{"name": "sink", "type": "discard"}],
    }
    return processes.config(content, name)


async def post(url: str, sender: str, path: str = "/v1/alerts", body: Any = None) -> tuple[int, str | None]:
    """Status and Retry-After."""
    headers = {"Authorization": f"Bearer {sender}"}
    told = body or {"host": "h", "name": "x", "timestamp": NOW}
    async with (
        aiohttp.ClientSession(url) as session,
        session.post(path, json=told, headers=headers) as answer,
    ):
        return answer.status, answer.headers.get("Retry-After")


async def test_a_rate_is_for_all_replicas_and_other_senders_do_not_notice(
    processes: Processes, valkey: Server
) -> None:
    urls = []
    for name in ("one.yaml", "two.yaml"):
        listen = f"127.0.0.1:{free_port()}"
        slow, other = token("slow", rate="1/h"), token("other")
        ingest = await processes.ingest(config(processes, valkey.url, listen, slow, other, name=name))
        await wait_ready(f"http://{listen}/readyz", ingest)
        urls.append(f"http://{listen}")
    assert await post(urls[0], "slow") == (201, None)
    for url in urls:
        status, after = await post(url, "slow")
        assert status == 429
        assert 3500 < int(after or 0) <= 3600
        assert (await post(url, "slow", "/api/v2/alerts", PROMETHEUS))[0] == 503
        assert (await post(url, "other"))[0] == 200
        async with aiohttp.ClientSession(url) as session, session.get("/metrics") as answer:
            text = await answer.text()
        assert 'ingest_requests_total{code="429",route="/v1/alerts"} 1.0' in text
        assert 'alerts_total{outcome="refused",source="prometheus"} 1.0' in text


async def test_another_configurations_tokens_count_without_a_restart(
    processes: Processes, valkey: Server
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    ingest = await processes.ingest(config(processes, valkey.url, listen, token("old"), token("stays")))
    url = f"http://{listen}"
    await wait_ready(f"{url}/readyz", ingest)
    assert [(await post(url, name))[0] for name in ("old", "new", "stays")] == [201, 401, 200]
    for headers, status in (({}, 401), ({"Authorization": "Bearer old"}, 404)):
        async with (
            aiohttp.ClientSession(url) as session,
            session.get("/v1/alerts/unknown", headers=headers) as answer,
        ):
            assert answer.status == status
    config(processes, valkey.url, listen, token("new"), token("stays"))
    line = await ingest.wait_line("config_reloaded")
    assert "tokens.old removed" in line
    assert "tokens.new added" in line
    assert [(await post(url, name))[0] for name in ("old", "new", "stays")] == [401, 200, 200]
    assert "sha256" not in ingest.text
    assert await ingest.stop() == 0
    ingest.assert_no_traceback()


@pytest.mark.parametrize(("package", "step"), [("ingest", "spend"), ("common", "append")])
async def test_a_batch_whose_reply_is_lost_is_503_and_stored_once_when_it_comes_again(
    processes: Processes, valkey: Server, proxied: Callable[[Server], Proxy], package: str, step: str
) -> None:
    proxy = await proxied(valkey).start()
    listen = f"127.0.0.1:{free_port()}"
    url = f"http://{listen}"
    ingest = await processes.ingest(config(processes, proxy.url, listen, token("quick", rate="1000/s")))
    await wait_ready(f"{url}/readyz", ingest)
    assert (await post(url, "quick"))[0] == 201  # from now on the server knows every script
    batch = [{"host": f"h{number}", "name": "x", "timestamp": NOW} for number in range(100)]
    proxy.lose_reply(Script(package, step).digest.encode())
    status, after = await post(url, "quick", body=batch)
    assert (status, after is not None) == (503, True)
    await proxy.wait_lost()
    assert (await post(url, "quick", body=batch))[0] == (201 if step == "spend" else 200)
    assert valkey.cli("XLEN", keys.stream("redispatch", "sink")) == 101
    ingest.assert_no_traceback()


async def test_a_burst_waits_for_redis_and_is_stored(processes: Processes, valkey: Server) -> None:
    """200 at once, with a rate and without: no request finds a pool empty."""
    listen = f"127.0.0.1:{free_port()}"
    told = token("quick", rate="100000/s"), token("free")
    ingest = await processes.ingest(config(processes, valkey.url, listen, *told))
    url = f"http://{listen}"
    await wait_ready(f"{url}/readyz", ingest)
    bodies = [{"host": f"h{number}", "name": "x"} for number in range(200)]
    names = ("quick", "free")
    async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(number: int) -> int:
            headers = {"Authorization": f"Bearer {names[number % 2]}"}
            async with session.post("/v1/alerts", json=bodies[number], headers=headers) as answer:
                return answer.status

        assert set(await asyncio.gather(*map(one, range(200)))) == {201}

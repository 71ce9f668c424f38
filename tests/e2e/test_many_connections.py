"""More idle connections than a process has file descriptors: everybody else is served all the same."""

from __future__ import annotations

import sys

import aiohttp

from tests.support.fleet import PATIENCE
from tests.support.processes import Processes, wait_ready
from tests.support.raw import Wire
from tests.support.servers import Server, free_port

DESCRIPTORS, IDLE = 200, 400


async def test_idle_connections_keep_nobody_out(processes: Processes, valkey: Server) -> None:
    listen = f"127.0.0.1:{free_port()}"
    file = processes.config(
        {
            "redis": {"url": valkey.url, "timeout": PATIENCE},
            "ingest": {"listen": listen},
            "destinations": [{"name": "sink", "type": "discard"}],
        }
    )
    words = [f'ulimit -n {DESCRIPTORS}; exec "$0" -m ingest', sys.executable]
    ingest = await processes.start("sh", "-c", *words, env={"REDISPATCH_CONFIG": str(file)})
    await wait_ready(f"http://{listen}/readyz", ingest)
    await ingest.wait_line("few_connections")
    wires = [Wire(listen) for _ in range(IDLE)]
    for wire in wires:
        await wire.__aenter__()
    async with aiohttp.ClientSession(f"http://{listen}") as session:
        for number in range(20):
            async with session.post("/v1/alerts", json={"host": f"h{number}", "name": "x"}) as answer:
                assert answer.status == 201
    await ingest.wait_line("connections_full")
    assert await wires[0].closed()
    wires[-1].send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await wires[-1].reply()).status == 200
    for wire in wires:
        await wire.__aexit__(None, None, None)
    assert await ingest.stop() == 0
    ingest.assert_no_traceback()

"""The measure of ingest: an aiohttp handler that reads the body and answers 201, on the same event loop.

`python -m benchmarks.bare PORT` serves until it is told to stop.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import uvloop
from aiohttp import web

from common import log


async def _handler(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(status=201)


async def _serve(port: int) -> None:
    application = web.Application()
    application.router.add_post("/v1/alerts", _handler)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    log.Log("bare").info("listening", address=f"127.0.0.1:{port}")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await runner.cleanup()


if __name__ == "__main__":
    log.setup("bare")
    uvloop.run(_serve(int(sys.argv[1])))

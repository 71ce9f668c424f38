"""A receiver that fails a fifth of its requests, and remembers each of them.

Takes a seed and the destination's timeout; keeps one Answer per request in `answers`. What a request gets
depends on the seed, its `webhook-id` and how often that came, not on the order of arrival.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from types import TracebackType
from typing import Self

import msgspec
from aiohttp import web

from benchmarks.verdict import Answer

OK, CLOSED, LATE = 200, 0, 299  # and 500, 503: the answers there are; the last is a 2xx nobody waits for
LATER = 0.3  # seconds after the timeout that a late answer comes
SLOWEST = 0.1  # seconds until any other answer, so that kills find something under way
MIX = ((500, 0.08), (503, 0.06), (CLOSED, 0.05), (LATE, 0.01), (OK, 0.80))


class Flaky:
    """`async with Flaky(seed, timeout) as receiver`; `url` is where it listens."""

    def __init__(self, seed: int, timeout: float) -> None:
        self.answers: list[Answer] = []
        self.delivered: set[str] = set()  # ids that got a 2xx
        self._seed = seed
        self._timeout = timeout
        self._came: Counter[str] = Counter()
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.1)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/"

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def choose(self, key: str) -> tuple[int, float]:
        """What this request gets, and after how many seconds."""
        self._came[key] += 1
        chance = random.Random(f"{self._seed} {key} {self._came[key]}")
        kind = chance.choices([kind for kind, _ in MIX], [share for _, share in MIX])[0]
        return kind, self._timeout + LATER if kind == LATE else chance.random() * SLOWEST

    async def idle(self) -> None:
        """Return when no answer is outstanding."""
        await self._quiet.wait()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self._under_way += 1
        self._quiet.clear()
        try:
            return await self._answer(request)
        finally:
            self._under_way -= 1
            if self._under_way == 0:
                self._quiet.set()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        came = time.monotonic()
        sent = msgspec.json.decode(await request.read())
        key = request.headers["webhook-id"]
        chosen, delay = self.choose(key)
        await asyncio.sleep(delay)
        response = web.Response(status=chosen or 500)
        arrived = chosen != CLOSED and await _write(request, response)
        answer = Answer(
            key=key,
            worker=request.headers["x-worker"],
            attempt=sent["data"]["attempt"],
            status=chosen,
            came=came,
            done=time.monotonic(),
            arrived=arrived,
        )
        self.answers.append(answer)
        if answer.good:
            self.delivered.add(key)
        if chosen == CLOSED and request.transport is not None:
            request.transport.abort()
        return response


async def _write(request: web.BaseRequest, response: web.Response) -> bool:
    """Whether the answer was written to somebody who still listened."""
    if request.transport is None or request.transport.is_closing():
        return False
    try:
        await response.prepare(request)
        await response.write_eof()
    except ConnectionError:
        return False
    return True

"""A webhook receiver with scripted answers, in the test's own process, on a free loopback port.

It answers what `answers` says, in order, then `default`. Every request is recorded and can be waited for;
with `secrets` given, each request's signature is checked and a wrong one fails `wait_for`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from multidict import CIMultiDict

from ops import signature

DEADLINE = 45.0


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    method: str
    path: str
    headers: CIMultiDict[str]
    body: bytes
    at: float  # seconds since the epoch

    @property
    def id(self) -> str:
        """`webhook-id`, the delivery's key."""
        return self.headers.get("webhook-id", "")

    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """What one request gets: after `until` is set, or a broken connection instead of any answer."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    until: asyncio.Event | None = None
    disconnect: bool = False


class Receiver:
    """`async with Receiver() as receiver`; `url` is where it listens."""

    def __init__(self, *, secrets: tuple[str, ...] = (), port: int = 0) -> None:
        self.answers: deque[Answer] = deque()
        self.default: Answer | Callable[[Request], Answer] = Answer()
        self.requests: list[Request] = []
        self.answered: list[tuple[Request, int]] = []
        self.secrets = secrets
        self.faults: list[str] = []
        self.port = port
        self._changed = asyncio.Condition()
        self._held: set[asyncio.Task[bool]] = set()
        self._runner: web.ServerRunner | None = None
        self._place: socket.socket | None = None  # keeps the port while nobody listens there

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}/"

    async def start(self) -> Self:
        """Listen; again on the same port after `stop`."""
        self._runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        self._leave()
        return self

    async def stop(self) -> None:
        """Listen no more; connections refused from here on, and answers held back never given.

        Nobody else gets the port, who would hear what is meant for this one.
        """
        await self._hang_up()
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind(("127.0.0.1", self.port))

    async def _hang_up(self) -> None:
        for held in self._held:
            held.cancel()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _leave(self) -> None:
        if self._place is not None:
            self._place.close()
            self._place = None

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._hang_up()
        self._leave()

    async def wait_for(self, count: int, deadline: float = DEADLINE) -> list[Request]:
        """Until so many requests have come since the start; those. AssertionError says how many did."""
        await self._wait(lambda: len(self.requests) >= count, deadline, f"{count} requests")
        return self.requests[:count]

    async def wait_answered(self, count: int, deadline: float = DEADLINE) -> list[tuple[Request, int]]:
        """Until so many answers were given, each with its status; a broken connection is none."""
        await self._wait(lambda: len(self.answered) >= count, deadline, f"{count} answers")
        return self.answered[:count]

    async def wait_ids(self, ids: set[str], deadline: float = DEADLINE) -> None:
        """Until each of these deliveries got a 2xx."""
        await self._wait(lambda: ids <= self.accepted.keys(), deadline, f"{len(ids)} ids")

    @property
    def accepted(self) -> Counter[str]:
        """How many 2xx answers each `webhook-id` got."""
        return Counter(request.id for request, status in self.answered if 200 <= status < 300)

    async def _wait(self, holds: Callable[[], bool], deadline: float, what: str) -> None:
        try:
            async with asyncio.timeout(deadline), self._changed:
                await self._changed.wait_for(lambda: bool(self.faults) or holds())
        except TimeoutError:
            raise AssertionError(
                f"waited {deadline} s for {what}: {len(self.requests)} requests came, "
                f"{len(self.answered)} were answered"
            ) from None
        assert not self.faults, self.faults

    async def _handle(self, incoming: web.BaseRequest) -> web.StreamResponse:
        request = Request(
            method=incoming.method,
            path=incoming.path_qs,
            headers=CIMultiDict(incoming.headers),
            body=await incoming.read(),
            at=time.time(),
        )
        if self.secrets:
            self._check(request)
        self.requests.append(request)
        await self._tell()
        answer = self._next(request)
        released = answer.until is None or await self._held_until(answer.until)
        if answer.disconnect or not released:
            if incoming.transport is not None:
                incoming.transport.abort()
            return web.Response()
        self.answered.append((request, answer.status))
        await self._tell()
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)

    async def _held_until(self, release: asyncio.Event) -> bool:
        """Whether the test released it before it stopped the receiver."""
        held = asyncio.create_task(release.wait())
        self._held.add(held)
        await asyncio.wait([held])
        self._held.discard(held)
        return not held.cancelled()

    def _check(self, request: Request) -> None:
        fault = signature.fault(request.headers, request.body, self.secrets, request.at)
        if fault is not None:
            self.faults.append(f"{request.id}: {fault}")

    def _next(self, request: Request) -> Answer:
        if self.answers:
            return self.answers.popleft()
        return self.default(request) if callable(self.default) else self.default

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

"""What a small HTTP server answers, on aiohttp's lowest level, for ingest, dispatcher and console.

Takes a table of routes, adds `/healthz`, `/readyz` and `/metrics`, answers what it refuses as RFC 9457
problems; `listen.py` serves it. A table instead of aiohttp's Application, and answers in one write, because
they take a third off the time of a request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import TypeAlias

import msgspec
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from common.log import Log, encodable
from common.storm import ERROR, WARNING, storms

Request: TypeAlias = web.BaseRequest
Handler: TypeAlias = Callable[[Request], Awaitable[web.StreamResponse]]
Observe: TypeAlias = Callable[[str, int, float], None]  # route, status, seconds
Present: TypeAlias = Callable[[Request, "Problem"], web.StreamResponse]

SMALL = 65_536  # bytes of an unread body that are cheaper to read than a new connection
PROBES = ("/healthz", "/readyz", "/metrics")
NAMED = "/{name}"  # how a route of many paths ends: with a name in braces
OTHER = "other"  # the route of what has none, so that no sender makes metric labels

encode = msgspec.json.Encoder().encode
log = Log("http")


class Problem(Exception):
    """A refusal: RFC 9457. `more` are extension members, such as `errors`; `items`, for the log alone, is how
    many items of a body are refused."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        items: int | None = None,
        **more: object,
    ) -> None:
        super().__init__(detail)
        self.items = items
        self.status = status
        self.detail = detail
        self.headers = headers
        self.more = more

    def response(self) -> web.Response:
        """As it goes out."""
        body = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": encodable(self.detail),  # may quote a header, which may hold any byte
            **self.more,
        }
        return web.Response(
            status=self.status,
            body=encode(body),
            headers=self.headers,
            content_type="application/problem+json",
        )


Refused: TypeAlias = Callable[[Request, str, Problem, float], None]


class Answer(web.StreamResponse):
    """A JSON answer to a client of HTTP/1.1 that keeps its connection: head and body in one write."""

    _heads: tuple[int, dict[int, bytes]] = (0, {})

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status=status)
        self._content = body

    @property
    def keep_alive(self) -> bool:
        """`answer` makes none where it is not."""
        return True

    async def prepare(self, request: Request) -> AbstractStreamWriter | None:
        """Send everything."""
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client is gone")
        body = self._content
        transport.write(b"%b%d\r\n\r\n%b" % (self._head(self._status), len(body), body))
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to send."""

    def plain(self) -> web.Response:
        """The same for a connection that ends with it."""
        return _json(self._status, self._content)

    @classmethod
    def _head(cls, status: int) -> bytes:
        now = int(time.time())
        if cls._heads[0] != now:
            cls._heads = (now, {})
        heads = cls._heads[1]
        if status not in heads:
            heads[status] = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nDate: {formatdate(now, usegmt=True)}\r\n"
                "Content-Type: application/json\r\nContent-Length: "
            ).encode()
        return heads[status]


def answer(request: Request, status: int, body: bytes) -> web.StreamResponse:
    """A JSON answer, the quick way when nothing speaks against it."""
    transport = request.transport
    quick = (
        request.keep_alive
        and request.version == (1, 1)
        and transport is not None
        and transport.get_write_buffer_size() == 0
    )
    return Answer(status, body) if quick else _json(status, body)


def _json(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")


class Site:
    """What is served. `ready` returns why this process should get no requests, or None.

    `observe` hears of each answer, `refused` of each problem: the request, its route, why, and seconds.
    `present` makes the answer to a problem.
    """

    def __init__(
        self,
        routes: Mapping[str, Mapping[str, Handler]],
        *,
        ready: Callable[[], str | None],
        registry: CollectorRegistry,
        observe: Observe = lambda route, code, seconds: None,
        refused: Refused = lambda request, route, problem, seconds: None,
        present: Present = lambda request, problem: problem.response(),
    ) -> None:
        self._ready = ready
        self._registry = registry
        self._observe = observe
        self._refused = refused
        self._present = present
        self._active = 0
        self._idle: asyncio.Event | None = None  # while draining
        self._probes: dict[str, Mapping[str, Handler]] = {
            path: {"GET": handler, "HEAD": handler}
            for path, handler in zip(PROBES, (self._healthz, self._readyz, self._metrics), strict=True)
        }
        self.replace(routes)

    def replace(self, routes: Mapping[str, Mapping[str, Handler]]) -> None:
        """Serve these from the next request on; one under way finishes with the handler it began with."""
        self._routes = {**routes, **self._probes}
        self._many = {route.rpartition("/")[0]: route for route in routes if route.endswith("}")}

    async def __call__(self, request: Request) -> web.StreamResponse:
        """One request, whatever happens."""
        started = time.perf_counter()
        self._active += 1
        try:
            route, response, problem = await self._respond(request)
        finally:
            self._active -= 1
            if self._idle is not None and not self._active:
                self._idle.set()
        if self._idle is not None:
            response = response.plain() if isinstance(response, Answer) else response
            response.force_close()
        seconds = time.perf_counter() - started
        self._observe(route, response.status, seconds)
        if problem is not None:
            self._refused(request, route, problem, seconds)
        return response

    async def drain(self, grace: float) -> None:
        """From now on each answer ends its connection; wait `grace` seconds for the requests under way."""
        self._idle = asyncio.Event()
        if self._active:
            with suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._idle.wait()

    async def _respond(self, request: Request) -> tuple[str, web.StreamResponse, Problem | None]:
        path = request.path
        problem: Problem | None = None
        methods = self._routes.get(path)
        if methods is None:
            path, methods = self._named(path)
        try:
            if methods is None:
                raise Problem(404, f"there is no {path[:200]}")
            handler = methods.get(request.method)
            if handler is None:
                allowed = ", ".join(methods)
                raise Problem(405, f"{path} takes {allowed}", headers={"Allow": allowed})
            response = await handler(request)
        except Problem as refusal:
            problem = refusal
            response = self._present(request, problem)
        except Exception as fault:  # noqa: BLE001 - the last resort: logged here, and told without details
            self._failed(path if methods else OTHER, fault)
            problem = Problem(500, "unexpected error; the log of the service has more")
            response = self._present(request, problem)
        if not request.content.is_eof() and not _worth_reading(request, response.status):
            response.force_close()
        return path if methods else OTHER, response, problem

    def unreadable(self, request: Request, status: int, why: str) -> web.StreamResponse:
        """What came was no request; of `request` only who sent it is true."""
        if storms.kind("unreadable", WARNING).admits():
            log.warning("unreadable", peer=request.remote, error=why)
        self._observe(OTHER, status, 0.0)
        return self._present(request, Problem(status, f"can't be read as HTTP: {why}"))

    def _failed(self, route: str, bug: Exception) -> None:
        if storms.kind("request_failed", ERROR, route=route).admits():
            log.error("request_failed", fault=bug, route=route)

    def _named(self, path: str) -> tuple[str, Mapping[str, Handler] | None]:
        """The route `.../{name}` that a path belongs to, so that no name makes metric labels."""
        parent, _, name = path.rpartition("/")
        route = self._many.get(parent)
        return (route, self._routes[route]) if route is not None and name else (path, None)

    async def _healthz(self, request: Request) -> web.StreamResponse:
        """That this runs at all is the news: the event loop makes progress."""
        return _json(200, b'{"status":"ok"}')

    async def _readyz(self, request: Request) -> web.StreamResponse:
        reason = self._ready()
        if reason is not None:
            raise Problem(503, reason)
        return _json(200, b'{"status":"ready"}')

    async def _metrics(self, request: Request) -> web.StreamResponse:
        accept = request.headers.get("Accept", "")
        try:
            generate, content_type = choose_encoder(accept if accept.isascii() else "")
        except (TypeError, ValueError):  # what the client library raises for a version that is none
            generate, content_type = choose_encoder("")
        return web.Response(body=generate(self._registry), headers={"Content-Type": content_type})


def _worth_reading(request: Request, status: int) -> bool:
    """Whether the connection is kept although the body has not been read."""
    length = request.content_length
    return status != HTTPStatus.REQUEST_TIMEOUT and length is not None and length <= SMALL

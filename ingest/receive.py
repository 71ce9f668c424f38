"""The first step: a request's bytes in, the answer out; between them parse, evaluate and append.

No 2xx before append has answered for every valid item. Raises Problem for what is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import Struct, structs

from common.alert import Status
from common.http import Handler, Problem, Request, answer, encode
from common.settings import Ingest
from ingest import identity, inflate, parse
from ingest.event import Event, Reading, Stored, Unavailable
from ingest.metrics import Metrics, Outcomes
from ingest.parse import BadBody, Kind, Parsed, Rejected

T = TypeVar("T")
ROUTES = ("/v1/alerts", "/v1/readings")
PATIENCE = 10.0  # seconds for a body to arrive
LARGE = 131_072  # bytes whose parsing would hold up others for a millisecond or more
LONGEST_KEY = 256
ANONYMOUS = "anonymous"
_IDEMPOTENCY_KEY = "Idempotency-Key"


class Appender(Protocol):
    """Stores events, all or none: `ingest.append`."""

    async def submit(self, events: list[Event], size: int = 0) -> list[Stored]:
        """One result per event; `size` of the request in bytes. Raises Unavailable."""


class Evaluator(Protocol):
    """Stores readings and makes alerts of them: `ingest.evaluate`."""

    async def submit(self, readings: list[Reading]) -> list[list[Event]]:
        """The alerts of each reading. Raises Unavailable."""


class _Single(Struct):
    key: str
    status: str
    destinations: list[str]
    dead: list[str]


class _Reading(Struct):
    status: str
    alerts: list[_Single]


class _Batch(Struct):
    accepted: int
    duplicates: int
    stored: int
    rejected: list[Rejected]


class Receiver:
    """The handlers of ingest's routes, for one configuration."""

    def __init__(
        self,
        settings: Ingest,
        appender: Appender,
        evaluator: Evaluator,
        metrics: Metrics,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        patience: float = PATIENCE,
    ) -> None:
        self._max_body = int(settings.max_body)
        self._max_alert = int(settings.max_alert)
        self._appender = appender
        self._evaluator = evaluator
        self._native, self._reading = metrics.native, metrics.reading
        self._clock = clock
        self._patience = patience

    def routes(self) -> dict[str, Mapping[str, Handler]]:
        """Path, method, handler."""
        return dict(zip(ROUTES, ({"POST": self.alerts}, {"POST": self.readings}), strict=True))

    async def alerts(self, request: Request) -> web.StreamResponse:
        """`POST /v1/alerts`."""
        chosen = _chosen_key(request)
        parsed = await self._parsed(request, parse.alerts, self._native)
        events = [event for _, event in parsed.items]
        if chosen is not None:
            events = [_keyed(event, chosen, _index(parsed, n), None) for n, event in enumerate(events)]
        stored = _routed(parsed, await self._append(events, parsed.size, self._native))
        if parsed.single:
            return answer(request, 201 if stored[0].status == "queued" else 200, encode(_single(stored[0])))
        return _batch(request, parsed.rejected, stored, 0)

    async def readings(self, request: Request) -> web.StreamResponse:
        """`POST /v1/readings`."""
        chosen = _chosen_key(request)
        parsed = await self._parsed(request, parse.readings, self._reading)
        alerts = await self._evaluate([reading for _, reading in parsed.items])
        if chosen is not None:
            alerts = [
                [_keyed(event, chosen, _index(parsed, n), event.alert.name) for event in of_one]
                for n, of_one in enumerate(alerts)
            ]
        events = [event for of_one in alerts for event in of_one]
        stored = await self._append(events, parsed.size, self._reading)
        self._reading.stored(len(alerts))
        if parsed.single:
            return answer(request, 201, encode(_Reading("stored", [_single(one) for one in stored])))
        return _batch(request, parsed.rejected, stored, len(alerts))

    async def _parsed(
        self, request: Request, read: Callable[[bytes, Kind, int, int], Parsed[T]], counted: Outcomes
    ) -> Parsed[T]:
        headers = request.headers
        try:
            kind = parse.kind(headers.get(hdrs.CONTENT_TYPE))
            encoding = headers.get(hdrs.CONTENT_ENCODING)
            body = await self._body(request)
            if encoding is None and len(body) <= LARGE:
                parsed = read(body, kind, self._clock(), self._max_alert)
            else:
                parsed = await asyncio.to_thread(self._decoded, body, encoding, kind, read)
        except BadBody as fault:
            accepts = {"Accept-Encoding": inflate.SUPPORTED} if fault.status == 415 else None
            raise Problem(fault.status, fault.detail, headers=accepts) from None
        if parsed.rejected:
            counted.invalid(len(parsed.rejected))
            _refuse_all_invalid(parsed)
        return parsed

    def _decoded(
        self,
        body: bytes,
        encoding: str | None,
        kind: Kind,
        read: Callable[[bytes, Kind, int, int], Parsed[T]],
    ) -> Parsed[T]:
        plain = inflate.inflate(body, encoding, self._max_body)
        return read(plain, kind, self._clock(), self._max_alert)

    async def _body(self, request: Request) -> bytes:
        content = request.content
        if content.is_eof():
            body = content.read_nowait()
        else:
            body = await self._arriving(request)
        if len(body) > self._max_body:
            raise self._too_large()
        return body

    async def _arriving(self, request: Request) -> bytes:
        """A body that is not here yet: bounded in size and in time."""
        if (request.content_length or 0) > self._max_body:
            raise self._too_large()
        _go_on(request)
        body = bytearray()
        try:
            async with asyncio.timeout(self._patience):
                while not request.content.at_eof():
                    body += await request.content.readany()
                    if len(body) > self._max_body:
                        raise self._too_large()
        except TimeoutError:
            raise Problem(408, f"the body did not arrive within {self._patience:g} s") from None
        except (HttpProcessingError, web.RequestPayloadError, ConnectionError) as fault:
            raise Problem(400, "the body broke off or is framed wrongly") from fault
        return bytes(body)

    def _too_large(self) -> Problem:
        return Problem(413, f"the body is larger than {self._max_body} bytes (ingest.max_body)")

    async def _evaluate(self, readings: list[Reading]) -> list[list[Event]]:
        try:
            return await self._evaluator.submit(readings) if readings else []
        except Unavailable as fault:
            self._reading.refused(len(readings))
            raise _unavailable(fault) from None

    async def _append(self, events: list[Event], size: int, counted: Outcomes) -> list[Stored]:
        if not events:
            return []
        try:
            stored = await self._appender.submit(events, size)
        except Unavailable as fault:
            counted.refused(len(events))
            raise _unavailable(fault) from None
        for one in stored:
            if not (one.destinations or one.dead):
                counted.invalid()  # it was not stored: no route leads anywhere
            elif one.conflict:
                counted.conflict()
            elif one.status == "queued":
                counted.queued()
            else:
                counted.duplicate()
        return stored


def _routed(parsed: Parsed[Event], stored: list[Stored]) -> list[Stored]:
    """What got a destination; an alert that no route matches is refused: none goes nowhere in silence."""
    placed = [one for one in stored if one.destinations or one.dead]
    if len(placed) < len(stored):
        pairs = zip(parsed.items, stored, strict=True)
        lost = [index for (index, _), one in pairs if not one.destinations and not one.dead]
        reason = "no route leads anywhere for this alert"
        parsed.rejected += [Rejected(index, reason, line=parsed.lines.get(index)) for index in lost]
        parsed.rejected.sort(key=lambda rejected: rejected.index)
        parsed.items = [item for item in parsed.items if item[0] not in lost]
        _refuse_all_invalid(parsed)
    return placed


def _single(stored: Stored) -> _Single:
    return _Single(stored.key, stored.status, stored.destinations, stored.dead)


def _batch(
    request: Request, rejected: list[Rejected], stored: Sequence[Stored], readings: int
) -> web.StreamResponse:
    queued = sum(one.status == "queued" for one in stored)
    told = _Batch(queued, len(stored) - queued, readings, rejected)
    status = 207 if rejected else 201 if queued or readings else 200
    return answer(request, status, encode(told))


def _refuse_all_invalid(parsed: Parsed[T]) -> None:
    if parsed.items:
        return
    first = parsed.rejected[0]
    if parsed.single:
        raise Problem(400, first.error, errors=parsed.rejected)
    place = f"item {first.index}" if first.line is None else f"line {first.line}"
    raise Problem(
        400,
        f"no item is valid; {place}: {first.error}",
        accepted=0,
        duplicates=0,
        stored=0,
        rejected=parsed.rejected,
    )


def _chosen_key(request: Request) -> str | None:
    told = request.headers.getall(_IDEMPOTENCY_KEY, None)
    if told is None:
        return None
    if len(set(told)) > 1:
        raise Problem(400, f"{_IDEMPOTENCY_KEY} is there more than once, with different values")
    value = told[0].strip()
    if not value or len(value) > LONGEST_KEY or not value.isprintable():
        raise Problem(400, f"{_IDEMPOTENCY_KEY} has to be 1 to {LONGEST_KEY} printable characters")
    return value


def _index(parsed: Parsed[T], n: int) -> int | None:
    return None if parsed.single else parsed.items[n][0]


def _keyed(event: Event, chosen: str, index: int | None, rule: str | None) -> Event:
    resolved = event.alert.status is Status.RESOLVED
    return structs.replace(event, key=identity.idempotency_key(ANONYMOUS, chosen, index, rule, resolved))


def _go_on(request: Request) -> None:
    """Answer `Expect: 100-continue`, which senders of larger bodies wait for."""
    expected = request.headers.get(hdrs.EXPECT)
    if expected is None:
        return
    if expected.lower() != "100-continue":
        raise Problem(417, "only 100-continue can be expected")
    if request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


def _unavailable(fault: Unavailable) -> Problem:
    return Problem(503, fault.detail, headers={"Retry-After": str(fault.retry_after)})

"""The first step: a request's bytes in, the answer out; between them parse, spend, evaluate and append.

No 2xx before append has answered for every valid item. Raises Problem for what is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from typing import Any, Protocol, TypeAlias, TypeVar

from aiohttp import web
from msgspec import structs
from multidict import MultiMapping

from common import trace
from common.http import NAMED, Handler, Problem, Request, answer, encode
from common.settings import Hook, Ingest
from ingest import answers, inflate, parse
from ingest.arrive import PATIENCE, Arrivals
from ingest.chosen import Chosen, chosen_key, keyed, places_of
from ingest.event import Event, Reading, Source, Stored, Unavailable
from ingest.formats.bodies import BadBody, Parsed, Reader
from ingest.formats.hook import Mapped
from ingest.inflate import Inflate
from ingest.metrics import Metrics, Outcomes
from ingest.parse import FORMATS, Format
from ingest.senders import OPEN, Sender, Senders

T = TypeVar("T")
_Reader: TypeAlias = Callable[[MultiMapping[str]], Reader[T]]
HOOKS = "/v1/hooks"
PENANCE = 1.0  # seconds until a body that took work is refused as too large: none is sent at once again
LARGE = 131_072  # bytes whose parsing would hold up others for a millisecond or more
LARGE_FOREIGN = 16_384  # the same where more is done with each item


# One large body at a time: several would leave the event loop no processor, and others would have to wait.
_aside = ThreadPoolExecutor(1, "body")


class Appender(Protocol):
    """Stores events, all or none: `ingest.append`."""

    async def submit(self, events: list[Event], size: int = 0) -> list[Stored]:
        """One result per event; `size` of the request in bytes. Raises Unavailable."""


class Evaluator(Protocol):
    """Stores readings and makes alerts of them: `ingest.evaluate`."""

    async def submit(self, readings: list[Reading]) -> list[list[Event]]:
        """The alerts of each reading. Raises Unavailable."""


class Spender(Protocol):
    """Knows what senders may send: `ingest.spend`."""

    async def spend(self, sender: Sender, alerts: int) -> float:
        """Seconds after which it may be sent again; 0: now. Raises Unavailable."""


class Receiver:
    """The handlers of ingest's routes, for one configuration."""

    def __init__(
        self,
        settings: Ingest,
        appender: Appender,
        evaluator: Evaluator,
        spender: Spender,
        metrics: Metrics,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        patience: float = PATIENCE,
        hooks: Iterable[Hook] = (),
        senders: Senders = OPEN,
        trace_of: Callable[[MultiMapping[str]], str | None] = trace.taken,
    ) -> None:
        self._max_body = int(settings.max_body)
        self.arrivals = Arrivals(self._max_body, patience)
        self._max_alert = int(settings.max_alert)
        self._appender = appender
        self._evaluator = evaluator
        self._spender = spender
        self._senders = senders
        self._trace_of = trace_of
        self._outcomes = metrics.outcomes
        self._native, self._reading = metrics.outcomes[Source.NATIVE], metrics.outcomes[Source.READING]
        self._clock = clock
        self._hooks = {hook.name: Format(Source.HOOK, Mapped(hook).reader) for hook in hooks}

    def handlers(self) -> dict[str, Handler]:
        """By path; each is for POST."""
        formats = {path: self._handler(form) for path, form in FORMATS.items()}
        return {
            "/v1/alerts": self.alerts,
            "/v1/readings": self.readings,
            **formats,
            HOOKS + NAMED: self.hook,
        }

    async def alerts(self, request: Request) -> web.StreamResponse:
        """`POST /v1/alerts`."""
        sender = self._senders.of(request.headers)
        chosen = chosen_key(request.headers, sender)
        parsed = await self._parsed(request, parse.alerts, self._native)
        if sender.rate is not None:
            await self._pay(sender, parsed, self._native)
        events = [event for _, event in parsed.items]
        if chosen is not None:
            places = places_of(parsed)
            events = [keyed(event, chosen, place) for event, place in zip(events, places, strict=True)]
        indexes = [index for index, _ in parsed.items]
        stored = await self._append(request, events, parsed.size, self._native)
        stored = answers.routed(parsed, indexes, stored)
        if parsed.single:
            return _single(request, stored[0])
        return _answer(request, *answers.batch(parsed.rejected, stored, 0))

    async def readings(self, request: Request) -> web.StreamResponse:
        """`POST /v1/readings`."""
        sender = self._senders.of(request.headers)
        chosen = chosen_key(request.headers, sender)
        parsed = await self._parsed(request, parse.readings, self._reading)
        if sender.rate is not None:
            await self._pay(sender, parsed, self._reading)
        events = await self._made(parsed, chosen, self._reading)
        stored = await self._append(request, events, parsed.size, self._reading)
        self._reading.stored(len(parsed.items))
        if parsed.single:
            told = answers.Measured("stored", [answers.single(one) for one in stored])
            return answer(request, 201, encode(told))
        return _answer(request, *answers.batch(parsed.rejected, stored, len(parsed.items)))

    async def hook(self, request: Request) -> web.StreamResponse:
        """`POST /v1/hooks/{name}`."""
        sender = self._senders.of(request.headers)
        name = request.path.rpartition("/")[2]
        form = self._hooks.get(name)
        if form is None:
            raise Problem(404, f"no hook is called {name[:100]}; hooks are in the configuration")
        return await self._take(form, request, sender)

    def _handler(self, form: Format) -> Handler:
        async def handle(request: Request) -> web.StreamResponse:
            return await self._take(form, request, self._senders.of(request.headers))

        return handle

    async def _take(self, form: Format, request: Request, sender: Sender) -> web.StreamResponse:
        """A format that may have alerts, readings or both."""
        counted = self._outcomes[form.source]
        chosen = chosen_key(request.headers, sender)
        parsed = await self._parsed(request, form.reader, counted, LARGE_FOREIGN)
        if sender.rate is not None:
            await self._pay(sender, parsed, counted, 429 if form.patient else 503)
        made = await self._made(parsed, chosen, counted)
        told = [(n, item) for n, (_, item) in enumerate(parsed.items) if isinstance(item, Event)]
        events = [event for _, event in told]
        if chosen is not None:
            places = places_of(parsed)
            events = [keyed(event, chosen, places[n]) for n, event in told]
        readings = len(parsed.items) - len(events)
        stored = await self._append(request, events + made, parsed.size, counted)
        counted.stored(readings)
        indexes = [parsed.items[n][0] for n, _ in told]
        placed = answers.routed(parsed, indexes, stored[: len(events)])
        if parsed.single and placed:
            return _single(request, placed[0])
        status, body = answers.batch(parsed.rejected, placed + stored[len(events) :], readings)
        return _answer(request, *answers.as_alertmanager(body) if form.strict else (status, body))

    async def _made(self, parsed: Parsed[Any], chosen: Chosen | None, counted: Outcomes) -> list[Event]:
        """The alerts that rules make of the readings."""
        readings = [item for _, item in parsed.items if isinstance(item, Reading)]
        made = await self._evaluate(readings, counted)
        if chosen is None:
            return [event for of_one in made for event in of_one]
        named = zip(parsed.items, places_of(parsed), strict=True)
        places = [place for (_, item), place in named if isinstance(item, Reading)]
        return [
            keyed(event, chosen, place, event.alert.name)
            for place, of_one in zip(places, made, strict=True)
            for event in of_one
        ]

    async def _parsed(
        self, request: Request, reader: _Reader[T], counted: Outcomes, large: int = LARGE
    ) -> Parsed[T]:
        try:
            read = reader(request.headers)
            packed = inflate.encoding(request.headers)
            body = await self.arrivals.body(request)
            try:
                parsed = await self._read(body, packed, read, large)
            finally:
                self.arrivals.done(body)
        except BadBody as fault:
            if fault.status == 413:
                await asyncio.sleep(PENANCE)
            accepts = {"Accept-Encoding": inflate.SUPPORTED} if fault.status == 415 else None
            raise Problem(fault.status, fault.detail, headers=accepts) from None
        if parsed.rejected:
            counted.invalid(len(parsed.rejected))
            answers.refuse_all_invalid(parsed)
        return parsed

    async def _read(self, body: bytes, packed: Inflate | None, read: Reader[T], large: int) -> Parsed[T]:
        """What takes longer than others should wait is done aside. Raises BadBody."""
        if packed is not None and len(body) <= large:
            body, packed = self._unpacked(body, packed, large)
        if packed is None and len(body) <= large:
            return read(body, self._clock(), self._max_alert)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_aside, self._decoded, body, packed, read)

    def _unpacked(self, body: bytes, packed: Inflate, most: int) -> tuple[bytes, Inflate | None]:
        """What is small enough to be inflated here, or the same as before."""
        try:
            return packed(body, min(most, self._max_body)), None
        except BadBody as fault:
            if fault.status != 413:
                raise
            return body, packed

    def _decoded(self, body: bytes, packed: Inflate | None, read: Reader[T]) -> Parsed[T]:
        plain = body if packed is None else packed(body, self._max_body)
        return read(plain, self._clock(), self._max_alert)

    async def _pay(self, sender: Sender, parsed: Parsed[Any], counted: Outcomes, status: int = 429) -> None:
        """Go on only while the sender keeps to its rate; what is invalid costs nothing."""
        if not parsed.items:
            return
        try:
            wait = await self._spender.spend(sender, len(parsed.items))
        except Unavailable as fault:
            counted.refused(len(parsed.items))
            raise _unavailable(fault, len(parsed.items)) from None
        if wait:
            counted.refused(len(parsed.items))
            detail = f"{sender.name} sends more than its rate, {sender.rate}"
            again = {"Retry-After": str(ceil(wait))}
            raise Problem(status, detail, headers=again, items=len(parsed.items))

    async def _evaluate(self, readings: list[Reading], counted: Outcomes) -> list[list[Event]]:
        try:
            return await self._evaluator.submit(readings) if readings else []
        except Unavailable as fault:
            counted.refused(len(readings))
            raise _unavailable(fault, len(readings)) from None

    async def _append(
        self, request: Request, events: list[Event], size: int, counted: Outcomes
    ) -> list[Stored]:
        if not events:
            return []
        context = self._trace_of(request.headers)
        if context is not None:  # of an event that brings its own, that counts
            events = [each if each.trace else structs.replace(each, trace=context) for each in events]
        try:
            stored = await self._appender.submit(events, size)
        except Unavailable as fault:
            counted.refused(len(events))
            raise _unavailable(fault, len(events)) from None
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


def _single(request: Request, stored: Stored) -> web.StreamResponse:
    return answer(request, 201 if stored.status == "queued" else 200, encode(answers.single(stored)))


def _answer(request: Request, status: int, told: answers.Batch) -> web.StreamResponse:
    return answer(request, status, encode(told))


def _unavailable(fault: Unavailable, items: int) -> Problem:
    return Problem(503, fault.detail, headers={"Retry-After": str(fault.retry_after)}, items=items)

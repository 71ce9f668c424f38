"""The spans of ingest, where OpenTelemetry is asked for them: one per request, one for putting alerts away.

Wraps handlers and the appender, so that without it nothing is there. The context of the second goes into the
entries, so that attempts are its children. Raises what they raise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiohttp import web
from msgspec import structs

from common import trace
from common.http import Handler, Problem, Request
from ingest.event import Event, Stored, Unavailable
from ingest.operations import POSTED

if TYPE_CHECKING:
    from common.otel import Span, Telemetry
    from ingest.receive import Appender


class Spanned:
    """An appender each of whose calls is a span."""

    def __init__(self, appender: Appender, telemetry: Telemetry) -> None:
        self._appender = appender
        self._telemetry = telemetry

    async def submit(self, events: list[Event], size: int = 0) -> list[Stored]:
        """The same; events without a trace of their own get that of the span."""
        from common.otel import PRODUCER  # it is there, since there is a Telemetry

        told: dict[str, str | int] = {
            "messaging.system": "redis",
            "messaging.operation.name": "append",
            "messaging.operation.type": "send",
            "messaging.batch.message_count": len(events),
        }
        own = [event.trace for event in events if event.trace]
        span = self._telemetry.span("append", PRODUCER, told, links=own)
        if span is None:
            return await self._appender.submit(events, size)
        with span.current():
            context = span.context
            traced = [each if each.trace else structs.replace(each, trace=context) for each in events]
            try:
                stored = await self._appender.submit(traced, size)
            except Unavailable:
                span.fail("unavailable")
                raise
            _tell(span, stored)
            return stored


def spanned(handlers: Mapping[str, Handler], telemetry: Telemetry) -> dict[str, Handler]:
    """The same handlers, by path; each request for what is posted is a span."""
    return {
        path: _spanned(path, handler, telemetry) if path in POSTED else handler
        for path, handler in handlers.items()
    }


def _spanned(path: str, handler: Handler, telemetry: Telemetry) -> Handler:
    from common.otel import SERVER

    told = {"http.request.method": "POST", "http.route": path}

    async def handle(request: Request) -> web.StreamResponse:
        parent = trace.taken(request.headers)
        span = telemetry.span(f"POST {path}", SERVER, told, parent)
        if span is None:
            return await handler(request)
        with span.current():
            try:
                response = await handler(request)
            except Problem as problem:
                _answered(span, problem.status)
                raise
            except Exception:
                _answered(span, 500)
                raise
            _answered(span, response.status)
            return response

    return handle


def _answered(span: Span, status: int) -> None:
    span.tell({"http.response.status_code": status})
    if status >= 500:
        span.fail(str(status))


def _tell(span: Span, stored: list[Stored]) -> None:
    names = {name for one in stored for name in (*one.destinations, *one.dead)}
    if len(names) == 1:
        span.tell({"messaging.destination.name": names.pop()})
    if len(stored) == 1:
        span.tell({"messaging.message.id": stored[0].key})

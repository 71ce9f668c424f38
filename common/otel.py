"""Spans by OpenTelemetry's SDK: the only module that imports it, and only `telemetry.begin` imports this one.

Takes contexts as texts (`trace.py`), gives spans whose context is such a text. What the standard variables
`OTEL_...` say is the SDK's to read. Spans go out in the background; what can't be sent is dropped, and what
breaks in the SDK is told in the log and raised to nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TypeAlias

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
    use_span,
)
from opentelemetry.trace import Span as OtelSpan

from common import __version__
from common.log import Log
from common.storm import ERROR, storms

GOODBYE = 3.0  # seconds that the end of a process waits for its last spans to be sent
MOST_LINKS = 64
SERVER, PRODUCER, CONSUMER = SpanKind.SERVER, SpanKind.PRODUCER, SpanKind.CONSUMER
Attributes: TypeAlias = Mapping[str, str | int]

log = Log("telemetry")
_bugs = storms.kind("telemetry_broke", ERROR)


@contextmanager
def _harmless() -> Iterator[None]:
    """An error in here ends here."""
    try:
        yield
    except Exception as bug:  # noqa: BLE001 - spans are no reason not to deliver alerts
        _broke(bug)


def _broke(bug: Exception) -> None:
    if _bugs.admits():
        log.error("telemetry_broke", fault=bug)


class Span:
    """One span under way."""

    __slots__ = ("_span",)

    def __init__(self, span: OtelSpan) -> None:
        self._span = span

    @property
    def context(self) -> str:
        """As it goes on to whoever works for this span."""
        told = self._span.get_span_context()
        parent = f"00-{told.trace_id:032x}-{told.span_id:016x}-{told.trace_flags & 3:02x}"
        state = told.trace_state.to_header()
        return f"{parent} {state}" if state else parent

    def tell(self, attributes: Attributes) -> None:
        """What has turned out."""
        with _harmless():
            for name, value in attributes.items():
                self._span.set_attribute(name, value)

    def fail(self, kind: str) -> None:
        """It failed; `kind` is of a closed set and no secret."""
        with _harmless():
            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR))

    def end(self) -> None:
        """It is over."""
        with _harmless():
            self._span.end()

    @contextmanager
    def current(self) -> Iterator[Span]:
        """The parent of what begins meanwhile; over at the end, however that is."""
        with use_span(self._span, record_exception=False, set_status_on_exception=False):
            try:
                yield self
            finally:
                self.end()


class Telemetry:
    """Makes spans. `processor` gets them when they end."""

    def __init__(self, service: str, environ: Mapping[str, str], processor: SpanProcessor) -> None:
        self._provider = TracerProvider(resource=_resource(service, environ), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("redispatch", __version__)

    def span(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        parent: str | None = None,
        links: Iterable[str] = (),
    ) -> Span | None:
        """One that begins now: below `parent`, else the current one, else as the first of a trace. None when
        it can't be made."""
        try:
            above = None
            if parent is not None:
                above = set_span_in_context(NonRecordingSpan(_context(parent)), Context())
            linked = [Link(_context(each)) for each in list(dict.fromkeys(links))[:MOST_LINKS]]
            return Span(self._tracer.start_span(name, above, kind, dict(attributes), linked))
        except Exception as bug:  # noqa: BLE001 - the same
            _broke(bug)
            return None

    async def close(self) -> None:
        """Send what is left, as far as that does not take long."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # it took too long, and the loop is closed by now
                loop.call_soon_threadsafe(done.set)

        Thread(target=shut, daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE):
                await done.wait()


def start(service: str, environ: Mapping[str, str]) -> Telemetry:
    """One that sends its spans to a collector. Raises ValueError for variables that make no sense."""
    return Telemetry(service, environ, BatchSpanProcessor(OTLPSpanExporter()))


def _resource(service: str, environ: Mapping[str, str]) -> Resource:
    """What the environment says, and a name when it does not say one."""
    named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    name = {} if named else {"service.name": f"redispatch-{service}"}
    return Resource.create({"service.version": __version__, **name})


def _context(text: str) -> SpanContext:
    parent, _, state = text.partition(" ")
    return SpanContext(
        trace_id=int(parent[3:35], 16),
        span_id=int(parent[36:52], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(parent[53:55], 16)),
        trace_state=TraceState.from_header([state]) if state else None,
    )

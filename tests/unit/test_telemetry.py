"""When spans are made, what they say, and that without them nothing is there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from multidict import CIMultiDict
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from common import keys, telemetry
from common.http import Problem
from common.otel import Telemetry
from common.outcomes import Outcome, OutcomeKind
from common.policy import retry_policy
from dispatcher import deliver as module
from dispatcher.deliver import Deliverer
from dispatcher.entry import Entry
from dispatcher.trouble import Trouble
from ingest.event import Event, Stored, Unavailable
from ingest.spans import Spanned, spanned
from tests.support.deliveries import alert, delivery, webhook
from tests.unit.test_tend import replica

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
UNSAMPLED = PARENT[:-1] + "0"
OTHER = f"00-{'1' * 32}-{'2' * 16}-01"
HERE = "http://127.0.0.1:4318"


class Made:
    """A Telemetry, and the spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.telemetry = Telemetry("test", {}, SimpleSpanProcessor(self._exporter))

    def one(self) -> ReadableSpan:
        [span] = self._exporter.get_finished_spans()
        self._exporter.clear()
        return span

    def none(self) -> bool:
        return not self._exporter.get_finished_spans()


@pytest.fixture
def made() -> Made:
    return Made()


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize(
    ("environ", "asked"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": HERE}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, False),
        ({"OTEL_SDK_DISABLED": "True", "OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, False),
    ],
)
def test_when_spans_are_asked_for(environ: Mapping[str, str], asked: bool) -> None:
    assert telemetry.wanted(environ) is asked
    if not asked:
        assert telemetry.begin("test", environ) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
    ],
)
def test_what_is_not_there_is_told(caplog: pytest.LogCaptureFixture, name: str, value: str) -> None:
    assert telemetry.begin("test", {"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, name: value}) is None
    [record] = caplog.records
    assert record.message == "telemetry_off"
    assert vars(record)["fields"]["error"].startswith(f"{name}: only ")


def test_packages_that_are_not_there_are_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "common.otel", None)
    assert telemetry.begin("test", {"OTEL_EXPORTER_OTLP_ENDPOINT": HERE}) is None
    assert 'pip install "redispatch[otel]"' in vars(caplog.records[0])["fields"]["error"]


def test_nothing_is_needed_unasked() -> None:
    """redis-py imports what it finds of OpenTelemetry, so that here nothing can be found."""
    code = (
        "import sys; sys.modules['opentelemetry'] = None;"
        "import ingest.serve, dispatcher.serve; from common import telemetry;"
        "assert telemetry.begin('x', {}) is None;"
        "sys.exit('common.otel' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


class Appender:
    """Keeps what it is given."""

    def __init__(self, fault: Unavailable | None = None) -> None:
        self.events: list[Event] = []
        self._fault = fault

    async def submit(self, events: list[Event], size: int = 0) -> list[Stored]:
        self.events = events
        if self._fault is not None:
            raise self._fault
        return [Stored(f"k{n}", "queued", ["pager"], []) for n, _ in enumerate(events)]


async def test_alerts_that_are_put_away(made: Made) -> None:
    appender = Appender()
    await Spanned(appender, made.telemetry).submit([Event(alert()), Event(alert(), trace=OTHER)])
    span = made.one()
    assert told(span) == {
        "messaging.system": "redis",
        "messaging.operation.name": "append",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": 2,
        "messaging.destination.name": "pager",
    }
    first, second = [event.trace or "" for event in appender.events]
    assert first[3:52] == f"{span.context.trace_id:032x}-{span.context.span_id:016x}"
    assert second == OTHER
    assert [f"{link.context.trace_id:032x}" for link in span.links] == ["1" * 32]


async def test_alerts_that_are_not_put_away(made: Made) -> None:
    with pytest.raises(Unavailable):
        await Spanned(Appender(Unavailable("secret")), made.telemetry).submit([Event(alert())])
    span = made.one()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
    assert told(span)["error.type"] == "unavailable"
    assert span.events == ()


@pytest.mark.parametrize(
    ("fault", "status", "failed"),
    [
        (Problem(400, "secret"), 400, False),
        (Problem(503, "secret"), 503, True),
        (RuntimeError("secret"), 500, True),
    ],
)
async def test_requests_that_are_refused(made: Made, fault: Exception, status: int, failed: bool) -> None:
    async def handler(request: Any) -> Any:
        raise fault

    class Request:
        headers = CIMultiDict(traceparent=PARENT)

    handlers = spanned({"/v1/alerts": handler, "/docs": handler}, made.telemetry)
    assert handlers["/docs"] is handler
    request: Any = Request()
    with pytest.raises(type(fault)):
        await handlers["/v1/alerts"](request)
    span = made.one()
    assert (span.name, told(span)["http.response.status_code"]) == ("POST /v1/alerts", status)
    assert (span.status.status_code is StatusCode.ERROR) is failed
    assert f"{span.context.trace_id:032x}" == TRACE
    assert "secret" not in span.to_json()


class Kind:
    """A destination that answers as it was told, and keeps what it was given."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.given: list[Any] = []

    def deliver(self, each: Any) -> Outcome:
        self.given.append(each)
        return self.outcome

    def deliver_batch(self, several: Any) -> Outcome:
        self.given += several
        return self.outcome


async def attempt(
    made: Made, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, *contexts: str | None
) -> list[Any]:
    """What a destination is given of deliveries with these traces, in one request."""
    kind: Any = Kind(outcome)
    monkeypatch.setattr(module, "make", lambda _: kind)
    async with asyncio.TaskGroup() as tasks:
        shared = replace(replica(tasks), telemetry=made.telemetry)
        trouble = Trouble(shared, "pager", keys.Destination("redispatch", "pager"))
        deliverer = Deliverer(shared, webhook(), retry_policy(webhook()), lambda item: None, trouble)
        await deliverer.attempt([(Entry("1-1", {}), replace(delivery("k"), trace=each)) for each in contexts])
    given: list[Any] = kind.given
    return given


async def test_an_attempt(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Outcome(OutcomeKind.REJECTED, 400, "secret")
    [given] = await attempt(made, monkeypatch, refused, PARENT)
    span = made.one()
    assert span.name == "deliver pager"
    assert given.trace[3:52] == f"{TRACE}-{span.context.span_id:016x}"
    assert told(span) == {
        "messaging.system": "redis",
        "messaging.operation.name": "deliver",
        "messaging.operation.type": "process",
        "messaging.destination.name": "pager",
        "messaging.consumer.group.name": "dispatchers",
        "messaging.client.id": "me",
        "messaging.message.id": "k",
        "redispatch.attempt": 1,
        "redispatch.outcome": "rejected",
        "http.response.status_code": 400,
        "error.type": "rejected",
    }
    assert span.status.status_code is StatusCode.ERROR
    assert "secret" not in span.to_json()


async def test_an_attempt_for_several(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    fine = Outcome(OutcomeKind.DELIVERED, 204)
    given = await attempt(made, monkeypatch, fine, PARENT, OTHER, None)
    span = made.one()
    assert span.parent is None
    assert {f"{link.context.trace_id:032x}" for link in span.links} == {TRACE, "1" * 32}
    assert {each.trace[3:52] for each in given} == {
        f"{span.context.trace_id:032x}-{span.context.span_id:016x}"
    }
    assert told(span)["messaging.batch.message_count"] == 3
    assert span.status.status_code is StatusCode.UNSET


async def test_what_the_sender_does_not_record_is_not_recorded(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    [given] = await attempt(made, monkeypatch, Outcome(OutcomeKind.DELIVERED), UNSAMPLED)
    assert given.trace.startswith(f"00-{TRACE}-")
    assert given.trace.endswith("-00")
    assert made.none()


class Breaks(SpanProcessor):
    """A bug in the SDK, when a span begins or when it ends."""

    def __init__(self, where: str) -> None:
        self._where = where

    def _break(self, where: str) -> None:
        if where == self._where:
            raise RuntimeError(where)

    def on_start(self, *_: Any, **__: Any) -> None:
        self._break("start")

    def on_end(self, *_: Any) -> None:
        self._break("end")


@pytest.fixture(params=["start", "end"])
def broken(request: pytest.FixtureRequest, made: Made) -> Made:
    made.telemetry = Telemetry("test", {}, Breaks(request.param))
    return made


@pytest.mark.parametrize("contexts", [(PARENT,), (PARENT, OTHER)], ids=["one", "a batch"])
async def test_an_attempt_goes_on_without_its_span(
    broken: Made,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    contexts: tuple[str, ...],
) -> None:
    given = await attempt(broken, monkeypatch, Outcome(OutcomeKind.DELIVERED), *contexts)
    assert len(given) == len(contexts)
    assert len(contexts) > 1 or TRACE in given[0].trace
    assert "telemetry_broke" in caplog.messages


async def test_alerts_are_taken_without_their_spans(broken: Made, caplog: pytest.LogCaptureFixture) -> None:
    appender = Appender()

    class Request:
        headers = CIMultiDict(traceparent=PARENT)

    async def handler(_: Any) -> Any:
        [stored] = await Spanned(appender, broken.telemetry).submit([Event(alert())])
        return SimpleNamespace(status=201, stored=stored)

    request: Any = Request()
    answer: Any = await spanned({"/v1/alerts": handler}, broken.telemetry)["/v1/alerts"](request)
    assert (answer.status, answer.stored.key, len(appender.events)) == (201, "k0", 1)
    assert "telemetry_broke" in caplog.messages

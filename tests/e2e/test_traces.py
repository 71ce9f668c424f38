"""A trace from a sender through both services to a receiver, with OpenTelemetry and without."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.support.fleet import Fleet, Fleets, Running, eventually
from tests.support.receiver import Answer, Receiver
from tests.support.servers import Server

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
ALERT = {"host": "web-1", "name": "disk-full"}
RETRY = {"retry": {"preset": "page", "base": "20ms"}}


async def post(ingest: Running, alert: dict[str, Any] = ALERT, **headers: str) -> int:
    async with ingest.http.post(ingest.url + "/v1/alerts", json=alert, headers=headers) as answer:
        return answer.status


def sent(receiver: Receiver) -> list[str]:
    """The contexts of the requests so far."""
    return [request.headers.get("traceparent", "") for request in receiver.requests]


async def test_each_attempt_is_of_the_sender_s_trace(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    fleet = await fleets(valkey, destination=RETRY)
    ingest, dispatcher = await fleet.both()
    receiver.answers.append(Answer(500))
    assert await post(ingest, traceparent=PARENT, tracestate="a=1, b=2") == 201
    requests = await receiver.wait_for(2)
    await fleet.wait_snapshot(lambda seen: seen.depth == 0, "an empty queue")
    assert {context[:36] for context in sent(receiver)} == {f"00-{TRACE}-"}
    assert len({*sent(receiver), PARENT}) == 3
    assert [request.headers["tracestate"] for request in requests] == ["a=1,b=2"] * 2
    await eventually(lambda: len(dispatcher.lines("attempt")) == 2, "two lines")
    assert [line["trace"] for line in dispatcher.lines("attempt")] == [TRACE] * 2
    assert await post(ingest, {**ALERT, "host": "web-2"}) == 201
    last = (await receiver.wait_for(3))[2]
    assert "traceparent" not in last.headers


def spans(collector: Receiver) -> dict[str, list[tuple[str, Span]]]:
    """What came so far, by name, each with its service's."""
    found: dict[str, list[tuple[str, Span]]] = {}
    for request in collector.requests:
        told = ExportTraceServiceRequest.FromString(request.body)
        for resource in told.resource_spans:
            of = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    found.setdefault(span.name, []).append((of["service.name"], span))
    return found


async def observed(fleet: Fleet, collector: Receiver) -> tuple[Running, Running]:
    """Both services, which send their spans to a collector."""
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url.rstrip("/"), "OTEL_BSP_SCHEDULE_DELAY": "50"}
    dispatcher = await fleet.dispatcher(env={**env, "OTEL_SERVICE_NAME": "mine"})
    return await fleet.ingest(env=env), dispatcher


async def test_spans_of_both_services_share_the_trace(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    """And when the collector is gone, nobody but the collector misses anything."""
    fleet = await fleets(valkey, destination=RETRY)
    receiver.answers.append(Answer(500, body=b"a secret"))
    async with Receiver() as collector:
        ingest, dispatcher = await observed(fleet, collector)
        assert await post(ingest, traceparent=PARENT) == 201
        await receiver.wait_for(2)
        seen = await eventually(
            lambda: (told := spans(collector)) and len(told.get("deliver hook", ())) == 2 and told, "spans"
        )
        seen = await eventually(lambda: (told := spans(collector)) and len(told) == 3 and told, "all of them")
        await collector.stop()
        assert await post(ingest, {**ALERT, "host": "web-2"}) == 201
        last = (await receiver.wait_for(3))[2]
        assert len(last.headers["traceparent"]) == len(PARENT)  # one is made up: somebody may record it
        assert await ingest.process.stop() == 0
        assert await dispatcher.process.stop() == 0
    assert b"a secret" not in b"".join(request.body for request in collector.requests)
    _of_one_trace(seen, sent(receiver)[:2])


def _of_one_trace(seen: dict[str, list[tuple[str, Span]]], contexts: list[str]) -> None:
    [(service, request)], [(_, append)] = seen["POST /v1/alerts"], seen["append"]
    failed, delivered = sorted(
        (span for _, span in seen["deliver hook"]), key=lambda s: s.start_time_unix_nano
    )
    assert service == "redispatch-ingest"
    assert {name for name, _ in seen["deliver hook"]} == {"mine"}
    every = (request, append, failed, delivered)
    assert {span.trace_id.hex() for span in every} == {TRACE}
    assert request.parent_span_id.hex() == SPAN
    assert append.parent_span_id == request.span_id
    assert failed.parent_span_id == delivered.parent_span_id == append.span_id
    assert contexts == [f"00-{TRACE}-{span.span_id.hex()}-01" for span in (failed, delivered)]
    kinds = [Span.SPAN_KIND_SERVER, Span.SPAN_KIND_PRODUCER, Span.SPAN_KIND_CONSUMER, Span.SPAN_KIND_CONSUMER]
    assert [span.kind for span in every] == kinds
    assert [span.status.code == Status.STATUS_CODE_ERROR for span in every] == [False, False, True, False]

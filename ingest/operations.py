"""What can be asked of ingest over HTTP: one table, which is served and which `openapi.py` draws.

Takes the handlers by path; returns routes. Raises ValueError when handlers and table disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from common.http import Handler
from ingest.answers import Batch, Measured, Single
from ingest.formats import collectd, native, prometheus, telegraf
from ingest.receipt import Receipt

Types: TypeAlias = tuple[Any, ...]  # any of them; empty: anything

JSON, LINES, TEXT, HTML = "application/json", "application/x-ndjson", "text/plain", "text/html"
FORM = "application/x-www-form-urlencoded"
EVENT, EVENTS = "application/cloudevents+json", "application/cloudevents-batch+json"
REFUSED = (400, 401, 408, 413, 415, 417, 429, 500, 503)  # what any POST may be answered
IMPATIENT = tuple(status for status in REFUSED if status != 429)  # where 503 says it


class Group(Struct):
    """What the webhooks of Alertmanager and Grafana have in common; the rest is ignored."""

    alerts: list[prometheus.Item]


class Gathered(Struct):
    """What Telegraf posts with `use_batch_format`."""

    metrics: list[telegraf.Item]


class CloudEvent(Struct):
    """An event's attributes, and any data."""

    specversion: str
    id: str
    source: str
    type: str
    subject: str | None = None
    time: str | None = None
    data: Any = None
    data_base64: str | None = None
    traceparent: Any = None  # what is none is left out, and no fault
    tracestate: Any = None


class Operation(Struct, frozen=True, kw_only=True):
    """One method of one path.

    `takes`: what a body may be, by content type; `answers`: by status, what is answered beside `problems`.
    """

    path: str
    summary: str
    takes: Mapping[str, Types] = {}
    answers: Mapping[int, Types]
    problems: tuple[int, ...] = REFUSED
    example: Any = None
    media: str = JSON
    open: bool = False  # for everybody, with a token or without

    @property
    def method(self) -> str:
        """What takes a body is posted."""
        return "POST" if self.takes else "GET"


_ANY: Mapping[int, Types] = {200: (Single, Batch), 201: (Single, Batch), 207: (Batch,)}
_BATCH: Mapping[int, Types] = {200: (Batch,), 201: (Batch,), 207: (Batch,)}
_NOTICE = {"labels": {"alertname": "DiskFull", "instance": "web-1:9100", "severity": "critical"}}


def _texts(*types: Any) -> dict[str, Types]:
    """JSON, which some senders call plain text."""
    return {JSON: types, TEXT: types}


def _webhook(path: str, sender: str) -> Operation:
    """Of those that send groups."""
    return Operation(
        path=path,
        summary=f"The webhook of {sender}",
        takes=_texts(Group),
        answers=_BATCH,
        problems=IMPATIENT,
        example={"alerts": [_NOTICE]},
    )


OPERATIONS = (
    Operation(
        path="/v1/alerts",
        summary="Alerts: one, an array, or one per line",
        takes={JSON: (native.AlertBody, list[native.AlertBody]), LINES: (str,)},
        answers=_ANY,
        example={"host": "web-1", "name": "disk-full", "severity": "critical", "labels": {"path": "/var"}},
    ),
    Operation(
        path="/v1/readings",
        summary="Readings: one, an array, or one per line",
        takes={JSON: (native.ReadingBody, list[native.ReadingBody]), LINES: (str,)},
        answers={200: (Batch,), 201: (Measured, Batch), 207: (Batch,)},
        example={"host": "web-1", "metric": "disk", "percent": 100, "labels": {"path": "/var"}},
    ),
    Operation(
        path="/api/v2/alerts",
        summary="What Prometheus sends to an Alertmanager",
        takes=_texts(list[prometheus.Item]),
        answers={200: (Batch,)},
        problems=IMPATIENT,
        example=[_NOTICE],
    ),
    _webhook("/v1/alertmanager", "Alertmanager (version 4)"),
    _webhook("/v1/grafana", "Grafana"),
    Operation(
        path="/v1/events",
        summary="CloudEvents 1.0: structured, a batch, or binary with ce- headers and any body",
        takes={EVENT: (CloudEvent,), EVENTS: (list[CloudEvent],), JSON: ()},
        answers=_ANY,
        example={"specversion": "1.0", "id": "7", "source": "web-1", "type": "disk.full"},
    ),
    Operation(
        path="/v1/collectd",
        summary="JSON of collectd's write_http: values, and notifications",
        takes=_texts(list[collectd.Item]),
        answers=_BATCH,
        example=[{"host": "web-1", "plugin": "load", "type": "load", "values": [0.5], "dsnames": ["value"]}],
    ),
    Operation(
        path="/v1/telegraf",
        summary="JSON of Telegraf: a metric, or a batch",
        takes=_texts(telegraf.Item, Gathered),
        answers=_BATCH,
        example={"name": "disk", "fields": {"used_percent": 100}, "tags": {"host": "web-1"}},
    ),
    Operation(
        path="/v1/hooks/{name}",
        summary="Any other sender's JSON, by a mapping in the configuration",
        takes={JSON: (), FORM: (dict[str, str],)},
        answers=_ANY,
        problems=(*IMPATIENT, 404),
        example={"monitor": {"hostname": "web-1"}, "heartbeat": {"status": 0}},
    ),
    Operation(
        path="/v1/alerts/{key}",
        summary="Receipt: what has become of an alert at each destination",
        answers={200: (Receipt,)},
        problems=(401, 404, 500, 503),
    ),
    Operation(
        path="/openapi.json",
        summary="This document",
        answers={200: (dict[str, Any],)},
        problems=(),
        open=True,
    ),
    Operation(
        path="/docs",
        summary="This document for people",
        answers={200: (str,)},
        problems=(),
        media=HTML,
        open=True,
    ),
)
PATHS = tuple(operation.path for operation in OPERATIONS)
POSTED = tuple(operation.path for operation in OPERATIONS if operation.method == "POST")


def routes(handlers: Mapping[str, Handler]) -> dict[str, Mapping[str, Handler]]:
    """What a Site serves: path, method, handler."""
    if set(handlers) != set(PATHS):
        raise ValueError(f"not in both: {sorted(set(handlers) ^ set(PATHS))}")
    return {operation.path: {operation.method: handlers[operation.path]} for operation in OPERATIONS}

"""The second step: which format a route takes, and so how a body becomes events or readings. Pure.

A table of the formats in `formats/`. A `reader` looks at a request's headers before its body is there,
returns what reads the body, or raises `BadBody`; so does what it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct
from multidict import MultiMapping

from ingest.event import Event, Reading, Source
from ingest.formats import alertmanager, bodies, cloudevents, collectd, native, prometheus, telegraf
from ingest.formats.bodies import Kind, Parsed, Reader

Read: TypeAlias = Callable[[bytes, Kind, int, int], Parsed[Any]]


class Format(Struct, frozen=True):
    """What a route takes; `source` is where its alerts come from.

    `strict`: answer 400 as soon as an item is invalid, as an Alertmanager does, though the others are stored.
    `patient`: 429 means later to its senders; others give an alert up on it, and get 503.
    """

    source: Source
    reader: Callable[[MultiMapping[str]], Reader[Any]]
    strict: bool = False
    patient: bool = False


def json(read: Read) -> Callable[[MultiMapping[str]], Reader[Any]]:
    """A reader of JSON, which some senders call plain text."""

    def reader(headers: MultiMapping[str]) -> Reader[Any]:
        kind = bodies.kind(headers.get("Content-Type"), "text/plain")
        return lambda body, now, limit: read(body, kind, now, limit)

    return reader


def alerts(headers: MultiMapping[str]) -> Reader[Event]:
    """Of `/v1/alerts`: the way that most requests go."""
    kind = bodies.kind(headers.get("Content-Type"))
    return lambda body, now, limit: native.alerts(body, kind, now, limit)


def readings(headers: MultiMapping[str]) -> Reader[Reading]:
    """Of `/v1/readings`."""
    kind = bodies.kind(headers.get("Content-Type"))
    return lambda body, now, limit: native.readings(body, kind, now, limit)


FORMATS = {
    "/api/v2/alerts": Format(Source.PROMETHEUS, json(prometheus.alerts), strict=True),
    "/v1/alertmanager": Format(Source.ALERTMANAGER, json(alertmanager.alerts)),
    "/v1/grafana": Format(Source.GRAFANA, json(alertmanager.grafana)),
    "/v1/events": Format(Source.CLOUDEVENT, cloudevents.reader, patient=True),
    "/v1/collectd": Format(Source.COLLECTD, json(collectd.items), patient=True),
    "/v1/telegraf": Format(Source.TELEGRAF, json(telegraf.items), patient=True),
}

"""The native format: alerts and readings as in docs/http.md, one object, an array, or one per line. Pure.

Returns `Parsed`; raises `BadBody`. What it returns is bounded in every direction: lengths, counts, nesting,
numbers, times. Unknown fields are ignored.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from common.alert import Alert, Status
from ingest import identity
from ingest.event import Event, Reading
from ingest.formats import fields
from ingest.formats.bodies import Fault, Kind, Parsed, items
from ingest.formats.fields import Annotations, Ident, Labels, Severity, Text, Time, Url


class AlertBody(Struct):
    """What may be told of an alert."""

    host: Ident
    name: Ident
    severity: Severity | None = None
    status: Status | None = None
    summary: Text | None = None
    value: int | float | None = None
    timestamp: Time = None
    starts_at: Time = None
    ends_at: Time = None
    labels: Labels | None = None
    annotations: Annotations | None = None
    url: Url | None = None


class ReadingBody(Struct):
    """What may be told of a reading."""

    host: Ident
    metric: Ident
    value: int | float | None = None
    percent: int | float | None = None
    timestamp: Time = None
    labels: Labels | None = None


_alert = msgspec.json.Decoder(AlertBody).decode
_reading = msgspec.json.Decoder(ReadingBody).decode


def alerts(body: bytes, kind: Kind, now: int, limit: int) -> Parsed[Event]:
    """Native alerts; `now` in ms, `limit` the bytes of one item. Raises BadBody."""
    return items(body, kind, limit, lambda item: event(_alert(item), now))


def readings(body: bytes, kind: Kind, now: int, limit: int) -> Parsed[Reading]:
    """Native readings; `now` in ms, `limit` the bytes of one item. Raises BadBody."""
    return items(body, kind, limit, lambda item: reading(_reading(item), now))


def event(told: AlertBody, now: int, source: str = "native") -> Event:
    """The event that was told. Raises Fault."""
    host, name, severity, labels = told.host, told.name, told.severity or None, told.labels
    if not (host.isprintable() and name.isprintable() and (severity is None or severity.isprintable())):
        fields.refuse_controls(host=host, name=name, severity=severity or "")
    labels = fields.labels(labels) if labels else {}
    if told.value is not None:
        fields.refuse_beyond(told.value, "value")
    starts_at = None if told.starts_at is None else fields.time("starts_at", told.starts_at, now)
    ends_at = None if told.ends_at is None else fields.time("ends_at", told.ends_at, now)
    if starts_at is not None and ends_at is not None and ends_at < starts_at:
        raise Fault("ends_at", "before starts_at")
    return Event(
        Alert(
            incident=identity.incident(host, name, labels),
            host=host,
            name=name,
            status=told.status or Status.FIRING,
            severity=severity,
            summary=told.summary,
            value=told.value,
            labels=labels,
            annotations=told.annotations or {},
            url=told.url,
            timestamp=now if told.timestamp is None else fields.time("timestamp", told.timestamp, now),
            starts_at=starts_at,
            ends_at=ends_at,
            source=source,
        )
    )


def reading(told: ReadingBody, now: int) -> Reading:
    """The reading that was told. Raises Fault."""
    if not (told.host.isprintable() and told.metric.isprintable()):
        fields.refuse_controls(host=told.host, metric=told.metric)
    value = told.percent if told.value is None else told.value
    if value is None:
        raise Fault("value", "missing (or percent)")
    fields.refuse_beyond(value, "percent" if told.value is None else "value")
    return Reading(
        host=told.host,
        metric=told.metric,
        value=value,
        timestamp=now if told.timestamp is None else fields.time("timestamp", told.timestamp, now),
        labels=fields.labels(told.labels) if told.labels else {},
    )

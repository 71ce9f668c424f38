"""What collectd's write_http posts: an array of value lists (collectd 5), of families of metrics (6), or of
notifications. Pure.

Values become readings, notifications alerts. A value that is none (`null`, NaN) is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from common.alert import Alert, Status
from ingest import identity
from ingest.event import Event, Reading, Source
from ingest.formats import fields
from ingest.formats.bodies import BadBody, Fault, Kind, Parsed, batch, elements, flat, utf8
from ingest.formats.fields import Annotations, Labels, Time

SEVERITIES = {"FAILURE": "critical", "WARNING": "warning"}  # OKAY is a resolution
_NOT_COUNTING = ("alertname", "instance", "host", "severity")  # these are told otherwise


class Metric(Struct):
    """One value of a family."""

    value: str | int | float | None = None
    labels: Labels | None = None
    timestamp_ms: Time = None


class Item(Struct):
    """Any of the three: told apart by `values`, `metrics` and `labels`."""

    host: str = ""
    plugin: str = ""
    plugin_instance: str | None = None
    type: str = ""
    type_instance: str | None = None
    values: list[str | int | float | None] | None = None
    dsnames: list[str] = []
    time: Time = None
    name: str = ""
    metrics: list[Metric] | None = None
    labels: Labels | None = None
    annotations: Annotations | None = None
    starts_at: Time = msgspec.field(default=None, name="startsAt")


_item = msgspec.json.Decoder(Item).decode


def items(body: bytes, kind: Kind, now: int, limit: int) -> Parsed[Event | Reading]:
    """`now` in ms, `limit` the bytes of one item. Raises BadBody."""
    body = utf8(body)
    if kind is not Kind.JSON or body.lstrip()[:1] != b"[":
        raise BadBody(400, "expected an array")
    return flat(batch(elements(body), len(body), limit, lambda item: list(_read(_item(item), now))))


def _read(told: Item, now: int) -> Iterator[Event | Reading]:
    if told.values is not None:
        yield from _values(told, told.values, now)
    elif told.metrics is not None:
        yield from _family(told, told.metrics, now)
    elif told.labels is not None:
        yield _notification(told, told.labels, now)
    else:
        raise Fault(None, "has neither values nor metrics nor labels")


def _values(told: Item, values: Sequence[str | int | float | None], now: int) -> Iterator[Reading]:
    host = fields.ident("host", told.host)
    fields.ident("plugin", told.plugin)
    fields.ident("type", told.type)
    parts = (told.plugin, told.plugin_instance, told.type, told.type_instance)
    metric = ".".join(part for part in parts if part)
    at = now if told.time is None else fields.time("time", told.time, now)
    if len(values) > 1 and len(told.dsnames) != len(values):
        raise Fault("dsnames", f"{len(told.dsnames)} names for {len(values)} values")
    for place, value in enumerate(values):
        number = None if value is None else fields.number(f"values[{place}]", value)
        if number is not None:
            name = f"{metric}.{told.dsnames[place]}" if len(values) > 1 else metric
            yield Reading(host, fields.ident("metric", name), number, at)


def _family(told: Item, metrics: Sequence[Metric], now: int) -> Iterator[Reading]:
    name = fields.ident("name", told.name)
    for place, metric in enumerate(metrics):
        at = f"metrics[{place}]"
        number = None if metric.value is None else fields.number(f"{at}.value", metric.value)
        if number is None:
            continue
        labels = dict(fields.labels(metric.labels or {}))
        host = labels.pop("host", None) or labels.pop("host.name", "")
        fields.ident(f"{at}.labels.host", host)
        time = metric.timestamp_ms
        if isinstance(time, str) and time.isdecimal() and len(time) <= 20:
            time = int(time)
        stamp = now if time is None else fields.time(f"{at}.timestamp_ms", time, now)
        yield Reading(host, name, number, stamp, labels)


def _notification(told: Item, labels: dict[str, str], now: int) -> Event:
    labels = fields.labels(labels)
    host = fields.ident("labels.instance", labels.get("host") or labels.get("instance", ""))
    name = fields.ident("labels.alertname", labels.get("alertname", ""))
    severity = labels.get("severity", "")
    if severity:
        fields.ident("labels.severity", severity, 64)
    status, severity = _means(severity)
    counting = {label: value for label, value in labels.items() if label not in _NOT_COUNTING}
    annotations = told.annotations or {}
    return Event(
        Alert(
            incident=identity.incident(host, name, counting),
            host=host,
            name=name,
            status=status,
            severity=severity or None,
            summary=annotations.get("summary"),
            labels=counting,
            annotations=annotations,
            timestamp=now if told.starts_at is None else fields.time("startsAt", told.starts_at, now),
            source=Source.COLLECTD.value,
        )
    )


def _means(severity: str) -> tuple[Status, str]:
    """A resolution takes the severity of its episode."""
    if severity == "OKAY":
        return Status.RESOLVED, ""
    return Status.FIRING, SEVERITIES.get(severity, severity)

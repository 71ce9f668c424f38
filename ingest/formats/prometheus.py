"""What Prometheus sends to an Alertmanager, `POST /api/v2/alerts`: an array of labelled alerts. Pure.

Prometheus repeats each firing alert while it lasts and a resolution for a quarter of an hour. `event` is also
what the webhooks of Alertmanager and Grafana are made of.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from common.alert import Alert, Status
from ingest import identity
from ingest.event import Event, Source
from ingest.formats import fields
from ingest.formats.bodies import BadBody, Fault, Kind, Parsed, batch, elements, utf8
from ingest.formats.fields import Annotations, Labels
from ingest.when import DAY

_FOREVER = 1 << 60  # an end may be told for as far ahead as anybody likes


class Item(Struct, rename="camel"):
    """One alert; `status` is told by webhooks only."""

    labels: Labels
    annotations: Annotations | None = None
    starts_at: str | None = None
    ends_at: str | None = None
    generator_url: str | None = msgspec.field(default=None, name="generatorURL")
    status: Literal["firing", "resolved"] | None = None


_item = msgspec.json.Decoder(Item).decode


def alerts(body: bytes, kind: Kind, now: int, limit: int) -> Parsed[Event]:
    """`now` in ms, `limit` the bytes of one alert. Raises BadBody."""
    body = utf8(body)
    if kind is not Kind.JSON or body.lstrip()[:1] != b"[":
        raise BadBody(400, "expected an array of alerts")
    return array(body, "", now, limit, Source.PROMETHEUS)


def array(body: bytes, member: str, now: int, limit: int, source: Source) -> Parsed[Event]:
    """The alerts in the body, or in its `member`. Raises BadBody."""
    return batch(elements(body, member), len(body), limit, lambda item: event(_item(item), now, source))


def event(told: Item, now: int, source: Source) -> Event:
    """By its labels: the incident is their fingerprint. Raises Fault."""
    labels = fields.labels(told.labels)
    host, severity = labels.get("host") or labels.get("instance", ""), labels.get("severity")
    if host:
        fields.ident("labels.host" if "host" in labels else "labels.instance", host)
    if severity:
        fields.ident("labels.severity", severity, 64)
    starts_at = _time("startsAt", told.starts_at, now)
    ends_at = _time("endsAt", told.ends_at, _FOREVER)
    if starts_at is not None and ends_at is not None and starts_at > ends_at:
        raise Fault("endsAt", "before startsAt")
    over = told.status == "resolved" or (ends_at is not None and ends_at <= now)
    end = min(now if ends_at is None else ends_at, now + DAY) if over else None
    start = starts_at if starts_at is not None else now if end is None else end
    annotations = told.annotations or {}
    url = told.generator_url
    return Event(
        Alert(
            incident=f"am:{identity.fingerprint(labels)}",
            host=host,
            name=fields.ident("labels.alertname", labels.get("alertname", "")),
            status=Status.FIRING if end is None else Status.RESOLVED,
            severity=severity,
            summary=annotations.get("summary"),
            labels=labels,
            annotations=annotations,
            url=url if url and len(url) <= fields.LONGEST_URL else None,  # rather without it than not at all
            timestamp=start if end is None else end,
            starts_at=start,
            ends_at=end,
            source=source.value,
        ),
        repeated=True,
    )


def _time(field: str, told: str | None, now: int) -> int | None:
    """None for the year one, in which the zero time of Go lies."""
    return None if not told or told.startswith("0001-") else fields.time(field, told, now)

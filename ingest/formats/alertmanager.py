"""Webhooks of Alertmanager (version 4) and of Grafana, which took its form: an object with `alerts`. Pure.

Each of the group's alerts is one by itself; what the group adds (common labels, receiver, message) is made
from them and ignored.
"""

from __future__ import annotations

from ingest.event import Event, Source
from ingest.formats import prometheus
from ingest.formats.bodies import BadBody, Kind, Parsed, utf8


def alerts(body: bytes, kind: Kind, now: int, limit: int) -> Parsed[Event]:
    """Alertmanager's; `now` in ms, `limit` the bytes of one alert. Raises BadBody."""
    return _group(body, kind, now, limit, Source.ALERTMANAGER)


def grafana(body: bytes, kind: Kind, now: int, limit: int) -> Parsed[Event]:
    """Grafana's; `now` in ms, `limit` the bytes of one alert. Raises BadBody."""
    return _group(body, kind, now, limit, Source.GRAFANA)


def _group(body: bytes, kind: Kind, now: int, limit: int, source: Source) -> Parsed[Event]:
    body = utf8(body)
    if kind is not Kind.JSON:
        raise BadBody(400, "expected one object with alerts")
    return prometheus.array(body, "alerts", now, limit, source)

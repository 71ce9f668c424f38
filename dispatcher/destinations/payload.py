"""The payload of a delivery: what a webhook posts and stdout prints, when there is no template.

Takes a Delivery, or those of a batch, returns the structs of `{"type", "timestamp", "data"}` or their JSON.
Pure. A delivery gives the same bytes each time, but for `attempt`. Raises one of RENDER_FAULTS for what JSON
or a date can't hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b

import msgspec
from msgspec import Struct

from common.alert import Status
from dispatcher.destinations.base import Delivery

# Lone surrogates and integers of thousands of digits; years beyond 9999.
RENDER_FAULTS = (ValueError, OverflowError)

_EPOCH = datetime(1970, 1, 1)  # naive: isoformat of an aware one ends in +00:00 instead of Z
_TYPES = {Status.FIRING: "alert.firing", Status.RESOLVED: "alert.resolved"}


class Data(Struct, gc=False):
    """The alert as a receiver sees it; times are RFC 3339, what is absent is null."""

    key: str
    incident: str
    host: str
    name: str
    severity: str | None
    status: Status
    summary: str | None
    value: int | float | None
    labels: dict[str, str]
    annotations: dict[str, str]
    url: str | None
    starts_at: str | None
    ends_at: str | None
    timestamp: str
    attempt: int
    source: str


class Payload(Struct, gc=False):
    """A Standard Webhooks payload; `timestamp` is when the event occurred."""

    type: str
    timestamp: str
    data: Data


class Batch(Struct):
    """Several alerts, the oldest first."""

    count: int
    alerts: list[Data]


class BatchPayload(Struct):
    """The payload of several; `timestamp` is when the latest event occurred."""

    type: str
    timestamp: str
    data: Batch


def rfc3339(ms: int) -> str:
    """`2026-11-29T17:42:00.000Z` for milliseconds since the epoch. Raises OverflowError outside 1..9999."""
    return f"{_second(ms // 1000)}.{ms % 1000:03}Z"


@lru_cache(maxsize=1024)  # a storm's alerts are of the same few seconds
def _second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()


def payload(delivery: Delivery) -> Payload:
    """The payload of one delivery."""
    alert = delivery.alert
    occurred = rfc3339(alert.timestamp)
    return Payload(
        _TYPES[alert.status],
        occurred,
        Data(
            key=delivery.key,
            incident=alert.incident,
            host=alert.host,
            name=alert.name,
            severity=alert.severity,
            status=alert.status,
            summary=alert.summary,
            value=alert.value,
            labels=alert.labels,
            annotations=alert.annotations,
            url=alert.url,
            starts_at=None if alert.starts_at is None else rfc3339(alert.starts_at),
            ends_at=None if alert.ends_at is None else rfc3339(alert.ends_at),
            timestamp=occurred,
            attempt=delivery.attempt,
            source=alert.source,
        ),
    )


_encode = msgspec.json.Encoder().encode


def body(delivery: Delivery) -> bytes:
    """The payload as JSON."""
    return _encode(payload(delivery))


def in_order(deliveries: Iterable[Delivery]) -> list[Delivery]:
    """By the time of the event, and by key."""
    return sorted(deliveries, key=lambda each: (each.alert.since, each.key))


def batch_id(keys: Iterable[str]) -> str:
    """The `webhook-id` of a batch: the same for the same members, in any order."""
    return "batch_" + blake2b("\n".join(sorted(keys)).encode(), digest_size=16).hexdigest()


def batch_body(deliveries: Sequence[Delivery]) -> bytes:
    """The payload of several as JSON, in the order given."""
    latest = rfc3339(max(each.alert.timestamp for each in deliveries))
    members = [payload(each).data for each in deliveries]
    return _encode(BatchPayload("alert.batch", latest, Batch(len(members), members)))

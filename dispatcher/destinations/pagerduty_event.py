"""What pagerduty posts: takes an alert, returns an event of PagerDuty's Events API v2 as JSON.

Pure, and within its limits for any alert: 255 characters of `dedup_key`, 1,024 of `summary`, 512 KB in all.
Trigger and resolve of an incident share their `dedup_key`. Raises RENDER_FAULTS for times and numbers that
can't be written.
"""

from __future__ import annotations

from typing import Any

import msgspec

from common.alert import Alert, Status
from common.bounded import bounded
from dispatcher.destinations.payload import rfc3339
from dispatcher.destinations.wording import cut, line, severity, subject

LARGEST = 512_000  # bytes of an event
_SUMMARY = 1024
_NAME = 255  # characters of what PagerDuty sets no limit to, and shows in tables
_URL = 2048
# Characters that each text of custom_details is cut to, one after the other, until the event fits.
_CUTS = (LARGEST, 65_536, 16_384, 4096, 1024, 256, 64)

_encode = msgspec.json.Encoder().encode


def event(key: str, alert: Alert, routing_key: str) -> bytes:
    """The event of one delivery; `key` is the delivery's."""
    told: dict[str, Any] = {
        "routing_key": routing_key,
        "event_action": "trigger",
        "dedup_key": bounded(alert.incident.encode(errors="replace").decode()),
    }
    if alert.status is Status.RESOLVED:
        return _encode(told | {"event_action": "resolve"})
    told |= {"client": "redispatch", "payload": _payload(alert)}
    if alert.url and len(alert.url) <= _URL and alert.url.lower().startswith(("http://", "https://")):
        told["links"] = [{"href": cut(alert.url, _URL), "text": "Source"}]
    return _fitting(told, _details(key, alert))


def _payload(alert: Alert) -> dict[str, Any]:
    labels = alert.labels
    sorted_out = {
        "component": labels.get("component") or labels.get("service"),
        "group": labels.get("group") or labels.get("cluster"),
        "class": labels.get("class") or alert.name,
    }
    return {
        "summary": line(alert.summary or "", _SUMMARY) or subject(alert, _SUMMARY),
        "source": line(alert.host, _NAME) or alert.source,
        "severity": severity(alert),
        "timestamp": rfc3339(alert.timestamp),
    } | {name: line(text, _NAME) for name, text in sorted_out.items() if text}


def _details(key: str, alert: Alert) -> dict[str, Any]:
    """What there is to know beside the payload; what is absent is left out."""
    details = {
        "key": key,
        "name": line(alert.name, _SUMMARY),
        "severity": line(alert.severity or "", _NAME),
        "value": alert.value,
        "starts_at": None if alert.starts_at is None else rfc3339(alert.starts_at),
        "labels": alert.labels,
        "annotations": alert.annotations,
    }
    return {name: value for name, value in details.items() if value not in (None, {}, "")}


def _fitting(told: dict[str, Any], details: dict[str, Any]) -> bytes:
    """The event, its details cut as much as needed and then marked `truncated`."""
    for most in _CUTS:
        short = {name: _cut(value, most) for name, value in details.items()}
        body = _with(told, short if short == details else short | {"truncated": True})
        if len(body) <= LARGEST:
            return body
    few = {name: value for name, value in short.items() if not isinstance(value, dict)}
    return _with(told, few | {"truncated": True})


def _with(told: dict[str, Any], details: dict[str, Any]) -> bytes:
    return _encode(told | {"payload": told["payload"] | {"custom_details": details}})


def _cut(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return cut(value, most)
    if isinstance(value, dict):
        return {cut(name, most): cut(text, most) for name, text in value.items()}
    return value

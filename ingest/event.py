"""What travels from parse to append, and what comes back.

`parse` and `evaluate` make events, `append` stores them and answers with one `Stored` per event, or raises
`Unavailable` for all of them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from common.alert import Alert


class Source(StrEnum):
    """Where an alert came from; also `source` in the alert."""

    NATIVE = "native"
    READING = "reading"
    PROMETHEUS = "prometheus"
    ALERTMANAGER = "alertmanager"
    GRAFANA = "grafana"
    CLOUDEVENT = "cloudevent"
    COLLECTD = "collectd"
    TELEGRAF = "telegraf"
    HOOK = "hook"


class Event(Struct, frozen=True):
    """One alert as its sender meant it, before observe has looked at its incident.

    `alert.incident` is set and `alert.key` is empty. `key` is complete already when the sender gave an
    Idempotency-Key or the event is one by itself, else observe makes it. `repeated`: its sender repeats a
    firing while it lasts, so that it belongs to the episode that is open, whatever start it tells. `trace` is
    its context (`common/trace.py`), which no key and no comparison knows of.
    """

    alert: Alert
    key: str | None = None
    repeated: bool = False
    trace: str | None = None


class Reading(Struct, frozen=True):
    """One measured value; `timestamp` in ms."""

    host: str
    metric: str
    value: int | float
    timestamp: int
    labels: dict[str, str] = {}


class Stored(Struct):
    """What became of one event: its copies are queued in `destinations`, or `dead` where those were full."""

    key: str
    status: Literal["queued", "duplicate"]
    destinations: list[str]
    dead: list[str]
    conflict: bool = False


class Unavailable(Exception):
    """An event could not be stored; the sender should try again after `retry_after` seconds."""

    def __init__(self, detail: str, retry_after: int = 1) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after = retry_after

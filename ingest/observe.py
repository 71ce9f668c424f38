"""Which episode of its incident an event belongs to, and so its key; before routing.

Takes events; returns alerts with key, severity and the destinations that their incident adds, asked and
changed in Redis by one script call (one per slot in a Cluster). Raises what redis-py raises.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from common import keys
from common.alert import Alert, Status
from common.scripts import Argument, Script
from common.settings import Settings
from common.wire import Wire
from ingest.event import Event
from ingest.identity import episode_key, escape, repeat_key, window_key
from ingest.route import Router

RANKS = {"info": 1, "warning": 2, "error": 3, "critical": 4}  # others rank as warning
_script = Script("ingest", "observe")
_Answer: TypeAlias = int | tuple[bytes, int] | tuple[bytes, int, bytes, bytes, bytes]


class Routed(Struct, frozen=True):
    """An alert with its key, and where it goes."""

    alert: Alert
    destinations: tuple[str, ...]


class Observer:
    """Keeps what is known of incidents; any number of replicas agree, since the script is the only writer."""

    def __init__(self, wire: Wire, settings: Settings, router: Router, *, cluster: bool) -> None:
        self._wire = wire
        self._namespace = settings.redis.namespace
        self._window = settings.dedupe.window.ms
        self._remember = settings.dedupe.remember.ms
        self._interval = settings.dedupe.repeat_interval.ms
        self._known = frozenset(destination.name for destination in settings.destinations)
        self._router = router
        self._cluster = cluster

    async def observe(self, events: Sequence[Event]) -> list[Routed]:
        """One `Routed` per event, in order."""
        first = [self._router.destinations(event.alert) for event in events]
        incidents = [keys.incident(self._namespace, event.alert.incident) for event in events]
        asked = [_arguments(event, to) for event, to in zip(events, first, strict=True)]
        answers = await self._ask(incidents, asked)
        return [
            self._conclude(event, to, answer)
            for event, to, answer in zip(events, first, answers, strict=True)
        ]

    async def _ask(self, incidents: list[str], asked: list[list[Argument]]) -> list[_Answer]:
        if not self._cluster:
            answers: list[_Answer] = await _script(self._wire, incidents, self._arguments(asked))
            return answers
        slots = _slots(incidents)
        calls = [
            ([incidents[place] for place in places], self._arguments([asked[place] for place in places]))
            for places in slots
        ]
        told, _ = await _script.several(self._wire, calls)
        found = {
            place: answer
            for places, replies in zip(slots, told, strict=True)
            for place, answer in zip(places, replies, strict=True)
        }
        return [found[place] for place in range(len(incidents))]

    def _arguments(self, asked: list[list[Argument]]) -> list[Argument]:
        args: list[Argument] = [self._window, self._remember, self._interval]
        for one in asked:
            args += one
        return args

    def _conclude(self, event: Event, first: tuple[str, ...], answer: _Answer) -> Routed:
        alert = event.alert
        if isinstance(answer, int):
            return Routed(replace(alert, key=event.key or own_key(alert, self._window, answer)), first)
        if len(answer) == 2:
            start, repeats = int(answer[0]), answer[1]
            key = event.key or repeat_key(alert.incident, start, repeats)
            return Routed(replace(alert, key=key, starts_at=start), first)
        at, n, told, severity, fired = answer
        if event.repeated:
            alert = replace(alert, starts_at=int(at))
        if event.key is not None:
            key = event.key
        elif alert.starts_at is not None:
            key = episode_key(alert.incident, int(at), True)
        else:
            key = window_key(alert.incident, int(at), self._window, _text(told), n, True)
        alert = replace(alert, key=key, severity=alert.severity or _text(severity))
        return Routed(alert, self._also(self._router.destinations(alert), fired))

    def _also(self, routed: tuple[str, ...], fired: bytes) -> tuple[str, ...]:
        names = (name for name in fired.decode().split(",") if name in self._known)
        return tuple(dict.fromkeys((*routed, *names)))


def own_key(alert: Alert, window: int, n: int = 0) -> str:
    """The key by what an event says itself, `n` resolutions before it in its window of so many ms: that of
    every firing, and of a resolution that is the first thing heard of its incident."""
    resolved = alert.status is Status.RESOLVED
    if alert.starts_at is not None:
        return episode_key(alert.incident, alert.starts_at, resolved)
    return window_key(alert.incident, alert.since, window, alert.severity, n, resolved)


def _slots(incidents: list[str]) -> list[list[int]]:
    """The places of incidents that share a slot, by the hash tag of their keys."""
    slots: dict[str, list[int]] = {}
    for place, incident in enumerate(incidents):
        slots.setdefault(incident.partition("}")[0], []).append(place)
    return list(slots.values())


def _arguments(event: Event, to: tuple[str, ...]) -> list[Argument]:
    alert = event.alert
    rank = RANKS.get(alert.severity, 2) if alert.severity else 0
    return [
        alert.status,
        "repeated" if event.repeated else "window" if alert.starts_at is None else "episode",
        alert.since,
        "" if alert.starts_at is None else alert.starts_at,
        f"{rank}{escape(alert.severity)}" if alert.severity else "-",
        ",".join(to) or "-",
    ]


@lru_cache(maxsize=1024)
def _text(escaped: bytes) -> str | None:
    if escaped == b"-":
        return None
    return re.sub(rb"~([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), escaped).decode()

"""Gathers deliveries for one request: between claim and deliver, where a destination takes batches.

Takes deliveries one by one; gives groups away when they are full, when the first of a group has waited long
enough, or when told to. Deliveries of a group agree in what `batch.by` names: fields of the alert, else
labels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from common.alert import Alert
from common.settings import Batch
from dispatcher.destinations.base import Delivery
from dispatcher.entry import Entry

FIELDS = ("host", "name", "severity", "status", "incident", "source")
Member: TypeAlias = tuple[Entry, Delivery]


class Gatherer:
    """One per lane; `send` is given each group, in the order in which its deliveries came."""

    def __init__(self, batch: Batch, send: Callable[[list[Member]], None]) -> None:
        self._batch = batch
        self._send = send
        self._groups: dict[tuple[str, ...], list[Member]] = {}
        self._timers: dict[tuple[str, ...], asyncio.TimerHandle] = {}

    def add(self, entry: Entry, delivery: Delivery) -> None:
        """Put a delivery to its group, and send that if it is full."""
        group = group_of(delivery.alert, self._batch.by)
        held = self._groups.setdefault(group, [])
        held.append((entry, delivery))
        if len(held) >= self._batch.max:
            self._give(group)
        elif len(held) == 1:
            loop = asyncio.get_running_loop()
            self._timers[group] = loop.call_later(float(self._batch.wait), self._give, group)

    def flush(self) -> None:
        """Send what is held, now."""
        for group in list(self._groups):
            self._give(group)

    def take_back(self) -> list[Member]:
        """What is held; it is not sent."""
        held = [member for group in self._groups.values() for member in group]
        for timer in self._timers.values():
            timer.cancel()
        self._groups.clear()
        self._timers.clear()
        return held

    def _give(self, group: tuple[str, ...]) -> None:
        timer = self._timers.pop(group, None)
        if timer is not None:
            timer.cancel()
        self._send(self._groups.pop(group))


def group_of(alert: Alert, by: Sequence[str]) -> tuple[str, ...]:
    """What an alert has of these: a field, else the label of that name, "" where there is none."""
    return tuple(
        str(getattr(alert, name) or "") if name in FIELDS else alert.labels.get(name, "") for name in by
    )

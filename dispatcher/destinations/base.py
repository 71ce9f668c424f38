"""What a kind of destination is: takes a Delivery, answers with an Outcome.

Stands between claim and decide. `make` gives the destination for a section of the configuration, or raises
Unusable. Each kind is a module of its own with a `make`, imported only when it is used.
"""

from __future__ import annotations

from collections.abc import Awaitable
from importlib import import_module
from typing import Protocol, cast

from msgspec import Struct

from common.alert import Alert
from common.outcomes import Outcome
from common.settings import Destination

KINDS = {
    "webhook": "dispatcher.destinations.webhook",
    "stdout": "dispatcher.destinations.stdout",
    "discard": "dispatcher.destinations.discard",
}


class Unusable(ValueError):
    """A destination's settings can't be used; the text names the destination and the setting, no secret."""


class Delivery(Struct, frozen=True, kw_only=True):
    """One alert for one destination, as it is handed over for one attempt.

    `deliveries` counts how often the entry was handed out, `attempt` is the number of the attempt under way
    (1 for the first), `first_at` when the delivery was accepted, ms.
    """

    entry_id: str
    deliveries: int
    key: str
    alert: Alert
    attempt: int
    first_at: int
    replay_of: str | None = None
    force: bool = False
    trace: str | None = None


class DestinationType(Protocol):
    """A kind of destination. Whatever the other side does is an Outcome; it raises only for bugs."""

    def deliver(self, delivery: Delivery) -> Outcome | Awaitable[Outcome]:
        """One attempt. Who has nothing to wait for answers at once, without a coroutine."""
        ...

    async def close(self) -> None:
        """Let go of connections. Nothing is delivered afterwards."""
        ...


class _Kind(Protocol):
    def make(self, destination: Destination) -> DestinationType: ...


def make(destination: Destination) -> DestinationType:
    """The destination for a section of the configuration. Raises Unusable."""
    module = KINDS.get(destination.type)
    if module is None:
        known = ", ".join(KINDS)
        raise Unusable(f"destination {destination.name}: type {destination.type!r} is not one of {known}")
    return cast(_Kind, import_module(module)).make(destination)

"""What a kind of destination is: takes a Delivery, answers with an Outcome.

Stands between claim and decide. Each kind is a module of its own; `kinds.py` finds it by its name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from math import isfinite
from typing import Protocol

from msgspec import Struct

from common.alert import Alert
from common.outcomes import Outcome, OutcomeKind
from common.reference import Reference


class Unusable(ValueError):
    """A destination's settings can't be used; the text names the destination and the setting, no secret."""


class Unrenderable(ValueError):
    """What should be sent can't be built from this alert; the text says why."""


class Request(Struct, frozen=True):
    """What one attempt sends, beside what is the same in all of them."""

    headers: dict[str, str]
    body: bytes


class Delivery(Struct, frozen=True, kw_only=True):
    """One alert for one destination, as it is handed over for one attempt.

    `deliveries` counts how often the entry was handed out, `attempt` is the number of the attempt under way
    (1 for the first), `first_at` when the delivery was accepted, ms. With a `reference` the alert is in an
    object, and `alert` only stands for it: it is fetched before a destination sees the delivery. `trace` is
    the alert's context (`common/trace.py`); a destination sees that of the attempt.
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
    reference: Reference | None = None


class DestinationType(Protocol):
    """A kind of destination. Whatever the other side does is an Outcome; it raises only for bugs.

    `explain` shows more of one that also has `request(deliveries) -> Request`, which raises Unrenderable, and
    `target`, a `request.Target`. One that has `instead(delivery, outcome) -> Outcome | None` is asked before
    a delivery dies: with an outcome it ends as delivered, and what that has as `then` goes on.
    """

    def deliver(self, delivery: Delivery) -> Outcome | Awaitable[Outcome]:
        """One attempt. Who has nothing to wait for answers at once, without a coroutine."""
        ...

    async def close(self) -> None:
        """Let go of connections. Nothing is delivered afterwards."""
        ...


class Batching(DestinationType, Protocol):
    """A kind of destination that can send several alerts as one request; its module says `BATCHES = True`."""

    def deliver_batch(self, deliveries: Sequence[Delivery]) -> Outcome | Awaitable[Outcome]:
        """One attempt for two or more."""
        ...


def checked(told: object) -> Outcome:
    """What a kind has answered. Raises TypeError or ValueError when it is nothing that can be settled."""
    if not isinstance(told, Outcome):
        raise TypeError("not an Outcome")
    if not isinstance(told.kind, OutcomeKind):
        raise TypeError("kind is no OutcomeKind")
    if told.status is not None and not (isinstance(told.status, int) and 100 <= told.status <= 999):
        raise ValueError("status is no HTTP status")
    if told.kind is not OutcomeKind.DELIVERED:
        str.encode(told.error)
        if told.retry_after is not None and not isfinite(told.retry_after):
            raise ValueError("retry_after is no number")
    return told

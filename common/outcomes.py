"""Closed enums and the values that decisions are: also the label values of metrics.

An **outcome** is what one attempt came to; a **decision** is what follows from it; a **settlement** is a
decision carried out by the settle script.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from common.alert import Alert


class Reason(StrEnum):
    """Why a delivery was given up."""

    ATTEMPTS = "attempts"
    MAX_DELIVERIES = "max_deliveries"
    MAX_AGE = "max_age"
    REJECTED = "rejected"
    QUEUE_FULL = "queue_full"
    MALFORMED = "malformed"
    RENDER = "render"
    REFUSED = "refused"
    OBJECT = "object"
    REMOVED = "removed"


class OutcomeKind(StrEnum):
    """What one attempt came to."""

    DELIVERED = "delivered"
    REJECTED = "rejected"
    FAILED = "failed"
    THROTTLED = "throttled"
    GONE = "gone"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    REFUSED = "refused"
    RENDER = "render"


class Result(StrEnum):
    """How a delivery ended."""

    DELIVERED = "delivered"
    DUPLICATE = "duplicate"
    SUPERSEDED = "superseded"
    DEAD = "dead"


class Outcome(Struct, frozen=True):
    """What a destination says of one attempt.

    `status` is the HTTP status when there was one; `error` a short text for people, without secrets;
    `retry_after` seconds, when the destination asked for it; `then` what it made of the alert, with a key of
    its own, which goes on to the destination's `follow_ups` before the original is settled.
    """

    kind: OutcomeKind
    status: int | None = None
    error: str = ""
    retry_after: float | None = None
    then: Alert | None = None


class Delivered(Struct, frozen=True):
    """The destination has it."""

    status: int | None = None


class Later(Struct, frozen=True):
    """Try again after `delay` seconds; `spends` an attempt or not; `alone`: in a request of its own."""

    delay: float
    spends: bool
    status: int | None = None
    error: str = ""
    alone: bool = False


class Dead(Struct, frozen=True):
    """Give it up; an operator may replay it."""

    reason: Reason
    status: int | None = None
    error: str = ""


class Duplicate(Struct, frozen=True):
    """Another copy of the same key was delivered."""


class Superseded(Struct, frozen=True):
    """A resolution not earlier than this firing was delivered."""


Decision: TypeAlias = Delivered | Later | Dead
Settlement: TypeAlias = Delivered | Later | Dead | Duplicate | Superseded

"""Carries out decisions, with a fence: the last step, one script call for a batch.

Takes settlements; returns for each whether it was done, fenced (it was no longer ours: nothing changed) or
waits since the dead letters are at their cap. Raises what redis-py raises; a call that is repeated
after a lost answer finds itself fenced.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import assert_never

from msgspec import Struct
from redis.asyncio import Redis

from common.alert import Status
from common.keys import GROUP, Destination
from common.outcomes import Dead, Delivered, Duplicate, Later, Reason, Settlement, Superseded
from common.scripts import Argument, Script
from dispatcher.destinations.base import Delivery
from dispatcher.entry import Entry, salvage

LONGEST_ERROR = 1024
_script = Script("dispatcher", "settle")


class Settled(IntEnum):
    """What the settle script says."""

    FENCED = 0
    DONE = 1
    WAITS = 2


class Settling(Struct, frozen=True):
    """One settlement under way. `delivery` is None for an entry that nobody here can read."""

    entry: Entry
    delivery: Delivery | None
    settlement: Settlement
    claimed: bool


class Caps(Struct, frozen=True):
    """Numbers the script needs: cap of dead letters, TTLs in ms."""

    max_dead: int
    record_ttl: int
    resolved_ttl: int


async def settle(
    redis: Redis, keys: Destination, consumer: str, caps: Caps, batch: Sequence[Settling]
) -> list[Settled]:
    """One answer per settlement, in order."""
    touched = [keys.stream, keys.retry, keys.dead, keys.ledger]
    args: list[Argument] = [GROUP, consumer, caps.max_dead, caps.record_ttl, caps.resolved_ttl]
    for item in batch:
        key = item.entry.fields.get(b"key", b"").decode("utf-8", "replace")
        incident = item.delivery.alert.incident if item.delivery else ""
        touched += (keys.record(key), keys.resolved(incident))
        args += _arguments(item)
    return [Settled(code) for code in await _script(redis, touched, args)]


def _arguments(item: Settling) -> list[Argument]:
    entry = item.entry
    verb, attempts, status, error, detail, fields = _told(item)
    return [
        verb,
        entry.id,
        entry.deliveries,
        "1" if item.claimed else "",
        attempts,
        "-" if status is None else status,
        error[:LONGEST_ERROR],
        detail,
        len(fields),
        *fields,
    ]


def _told(item: Settling) -> tuple[str, int, int | None, str, Argument, list[bytes]]:
    """Verb, attempts made, status, error, detail and the fields to store, as the script's header has them."""
    entry, settlement = item.entry, item.settlement
    failures = entry.attempts
    match settlement:
        case Delivered(status):
            return "delivered", failures + 1, status, "", _resolution(item.delivery), []
        case Superseded():
            return "superseded", failures, None, "superseded", "", []
        case Duplicate():
            return "duplicate", failures, None, "", "", []
        case Later(delay, spends, status, error):
            attempts = failures + 1 if spends else failures
            return "later", attempts, status, error, round(delay * 1000), _with_attempts(entry, attempts)
        case Dead(reason, status, error):
            attempts = failures + 1 if _was_tried(entry, reason, status) else failures
            return "dead", attempts, status, error, reason, _with_alert(entry, attempts)
        case _:
            assert_never(settlement)


def _was_tried(entry: Entry, reason: Reason, status: int | None) -> bool:
    """Whether it dies of an attempt made just now; one that waited to become a dead letter does not."""
    if b"reason" in entry.fields:
        return False
    return status is not None or reason in (Reason.ATTEMPTS, Reason.REJECTED, Reason.REFUSED)


def _resolution(delivery: Delivery | None) -> Argument:
    if delivery is None or delivery.alert.status is not Status.RESOLVED:
        return ""
    return delivery.alert.since


def _with_attempts(entry: Entry, attempts: int) -> list[bytes]:
    fields = {**entry.fields, b"attempt": str(attempts).encode()}
    return [part for pair in fields.items() for part in pair]


def _with_alert(entry: Entry, attempts: int) -> list[bytes]:
    fields = {**entry.fields, b"alert": salvage(entry), b"attempt": str(attempts).encode()}
    return [part for pair in fields.items() for part in pair]

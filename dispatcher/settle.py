"""Carries out decisions, with a fence: the last step, one script call for a batch.

Takes settlements; returns for each whether it was done, fenced (it was no longer ours: nothing changed) or
waits: since the dead letters are at their cap, or unspent behind a gate that is gone. Raises what redis-py
raises; a call that is repeated after a lost answer finds itself fenced, and only its failures count twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TypeAlias

from msgspec import Struct

from common.alert import Status
from common.keys import GROUP, Destination
from common.outcomes import Dead, Delivered, Duplicate, Later, OutcomeKind, Reason, Settlement, Superseded
from common.scripts import Argument, Script, Server
from common.settings import Breaker
from dispatcher.destinations.base import Delivery
from dispatcher.entry import known, salvage
from dispatcher.gate import News, Probe, news
from dispatcher.settling import Settling

LONGEST_ERROR = 1024
_script = Script("dispatcher", "settle")
_Unsuccessful: TypeAlias = Later | Dead | Duplicate | Superseded


class Settled(IntEnum):
    """What the settle script says."""

    FENCED = 0
    DONE = 1
    WAITS = 2
    SPARED = 3


class Caps(Struct, frozen=True):
    """Numbers the script needs: cap of dead letters, TTLs in ms, and when failures close the gate."""

    max_dead: int
    record_ttl: int
    resolved_ttl: int
    breaker: Breaker = Breaker()


async def settle(
    redis: Server,
    keys: Destination,
    consumer: str,
    caps: Caps,
    batch: Sequence[Settling],
    *,
    lease_back: bool = False,
) -> list[Settled]:
    """One answer per settlement, in order. `lease_back` gives a probe back that is in none of them."""
    done = _successes(batch, keys, consumer)
    others: list[int] = []
    rest: list[Argument] = []
    for place, item in enumerate(batch):
        if not isinstance(item.settlement, Delivered):
            others.append(place)
            rest += _told(item, item.settlement)
    records = done.records + [keys.record(batch[place].entry.key) for place in others]
    order = done.places + others
    words = _news(batch, silent=not others, lease_back=lease_back).words(caps.breaker)
    held = _held(batch, order)
    counts = [len(done.places), len(words), len(held) // 2]
    codes = await _script(
        redis,
        [keys.stream, keys.retry, keys.dead, keys.ledger, keys.gate, keys.objects, *records, *done.resolved],
        [
            *(GROUP, consumer, caps.max_dead, caps.record_ttl, caps.resolved_ttl),
            *(*counts, *words, *held, *done.told, *rest),
        ],
    )
    answers = [Settled.FENCED] * len(batch)
    for place, code in zip(order, codes, strict=True):
        answers[place] = _ANSWERS[code]
    return answers


class _Successes(Struct):
    """Where they are in the batch, their keys, and what the script is told of them."""

    places: list[int] = []
    records: list[str] = []
    resolved: list[str] = []
    told: list[Argument] = []


def _successes(batch: Sequence[Settling], keys: Destination, consumer: str) -> _Successes:
    done = _Successes()
    for place, item in enumerate(batch):
        settlement, delivery = item.settlement, item.delivery
        if isinstance(settlement, Delivered) and delivery is not None:
            done.places.append(place)
            done.records.append(keys.record(delivery.key))
            done.told += _succeeded(delivery, settlement, consumer)
            if delivery.alert.status is Status.RESOLVED:
                done.resolved.append(keys.resolved(delivery.alert.incident))
    return done


def _news(batch: Sequence[Settling], *, silent: bool, lease_back: bool) -> News:
    """What the batch says of the destination; when it is `silent`, only a probe says something."""
    heard = News() if silent and not any(item.probe for item in batch) else news(batch)
    if lease_back and heard.probe is None:
        heard.probe = Probe.BACK
    return heard


def _succeeded(delivery: Delivery, settlement: Delivered, consumer: str) -> tuple[Argument, ...]:
    """A success, as the script's header has it."""
    status = "-" if settlement.status is None else settlement.status
    return (
        delivery.entry_id,
        f"{delivery.deliveries} {consumer} {delivery.attempt} {status} {delivery.first_at}",
        delivery.alert.since if delivery.alert.status is Status.RESOLVED else "",
    )


def ends(settlement: Settlement) -> bool:
    """Whether nobody needs the alert any more once it is done."""
    return not isinstance(settlement, Later | Dead)


def _held(batch: Sequence[Settling], order: list[int]) -> list[Argument]:
    """Objects that nobody needs any more, each behind its settlement's place in the script's order."""
    held: list[Argument] = []
    for n, place in enumerate(order, 1):
        name = batch[place].entry.fields.get(b"object")
        if name is not None and ends(batch[place].settlement):
            held += (n, name)
    return held


_ANSWERS = {int(answer): answer for answer in Settled}


def _told(item: Settling, settlement: _Unsuccessful) -> list[Argument]:
    """A settlement other than a success, as the script's header has it."""
    entry = item.entry
    attempts, error = entry.attempts, ""
    status: int | None = None
    detail: Argument = ""
    fields: list[bytes] = []
    match settlement:
        case Superseded():
            verb, error = "superseded", "superseded"
        case Duplicate():
            verb = "duplicate"
        case Later(delay, spends, status, error, alone):
            verb, detail = "later", round(delay * 1000)
            attempts += spends
            fields = _flat(_again(item, attempts) | ({b"alone": b"1"} if alone else {}))
        case Dead(reason, status, error):
            verb, detail = "dead", reason
            attempts += _was_tried(item, reason, status)
            told = {b"alert": salvage(entry), b"attempt": str(attempts).encode()}
            fields = _flat({**known(entry), **told})
    code: Argument = "-" if status is None else status
    error = error[:LONGEST_ERROR]
    return [
        verb,
        entry.id,
        entry.deliveries,
        _claimed(item),
        attempts,
        code,
        error,
        detail,
        len(fields),
        *fields,
    ]


def _claimed(item: Settling) -> str:
    if item.attempt is not None and item.attempt.kind is OutcomeKind.GONE:
        return "gone"
    return "1" if item.claimed else ""


def _again(item: Settling, attempts: int) -> dict[bytes, bytes]:
    """The fields of the entry to come; refusals with Retry-After are counted until something else happens."""
    fields = {**item.entry.fields, b"attempt": str(attempts).encode()}
    if item.attempt is None:
        return fields
    fields.pop(b"throttled", None)
    if item.attempt.throttles:
        fields[b"throttled"] = str(item.attempt.throttles).encode()
    return fields


def _was_tried(item: Settling, reason: Reason, status: int | None) -> bool:
    """Whether it dies of an attempt made just now; one that waited to become a dead letter does not."""
    if b"reason" in item.entry.fields:
        return False
    if item.attempt is not None:
        return item.attempt.kind is not OutcomeKind.RENDER
    return status is not None or reason in (Reason.ATTEMPTS, Reason.REJECTED, Reason.REFUSED)


def _flat(fields: dict[bytes, bytes]) -> list[bytes]:
    return [part for pair in fields.items() for part in pair]

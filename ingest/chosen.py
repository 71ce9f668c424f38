"""Keys that senders choose, by the header Idempotency-Key: between parse and append. Pure.

Takes a request's headers and what was parsed; gives each event its key. Raises Problem (400) for a header
that makes no sense.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import structs
from multidict import MultiMapping

from common.alert import Status
from common.http import Problem
from ingest.event import Event
from ingest.formats.bodies import Parsed
from ingest.identity import idempotency_key
from ingest.senders import Sender

HEADER = "Idempotency-Key"
LONGEST = 256
Chosen: TypeAlias = tuple[str, str]  # whose, and the header's value


def chosen_key(headers: MultiMapping[str], sender: Sender) -> Chosen | None:
    """What the header says; None without one. Raises Problem (400)."""
    told = headers.getall(HEADER, None)
    if told is None:
        return None
    if len(set(told)) > 1:
        raise Problem(400, f"{HEADER} is there more than once, with different values")
    value = told[0].strip()
    if not value or len(value) > LONGEST or not value.isprintable():
        raise Problem(400, f"{HEADER} has to be 1 to {LONGEST} printable characters")
    return sender.name, value


def places_of(parsed: Parsed[Any]) -> Sequence[int | str | None]:
    """What tells the items apart: nothing for one alone; the index, with a number where it has several."""
    if parsed.single:
        return [None] * len(parsed.items)
    before: Counter[int] = Counter()
    places: list[int | str] = []
    for index, _ in parsed.items:
        places.append(f"{index}-{before[index]}" if before[index] else index)
        before[index] += 1
    return places


def keyed(event: Event, chosen: Chosen, place: int | str | None, rule: str | None = None) -> Event:
    """The event with its key; `rule` is that of a reading's alert."""
    resolved = event.alert.status is Status.RESOLVED
    return structs.replace(event, key=idempotency_key(*chosen, place, rule, resolved))

"""What ingest answers once everything valid is stored: shapes, and which status says it. Pure.

Raises Problem when nothing of a request was valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec import Struct, structs

from common.http import Problem
from ingest.event import Stored
from ingest.formats.bodies import Parsed, Rejected

T = TypeVar("T")


class Single(Struct):
    """To one alert."""

    key: str
    status: str
    destinations: list[str]
    dead: list[str]


class Measured(Struct):
    """To one reading."""

    status: str
    alerts: list[Single]


class Batch(Struct):
    """To several: how many alerts were queued or known, how many readings stored, and what was wrong."""

    accepted: int
    duplicates: int
    stored: int
    rejected: list[Rejected]


def single(stored: Stored) -> Single:
    """What became of one alert."""
    return Single(stored.key, stored.status, stored.destinations, stored.dead)


def batch(rejected: list[Rejected], stored: Sequence[Stored], readings: int) -> tuple[int, Batch]:
    """Status and body: 207 when some were invalid, 200 when there was nothing new."""
    queued = sum(one.status == "queued" for one in stored)
    told = Batch(queued, len(stored) - queued, readings, rejected)
    return 207 if rejected else 201 if queued or readings else 200, told


def as_alertmanager(told: Batch) -> tuple[int, Batch]:
    """200 and no other; raises Problem (400) when anything was invalid, though the rest is stored."""
    if told.rejected:
        first = told.rejected[0]
        detail = f"item {first.index}: {first.error}; what is valid is stored all the same"
        raise Problem(400, detail, **structs.asdict(told))
    return 200, told


def routed(parsed: Parsed[Any], indexes: Sequence[int], stored: list[Stored]) -> list[Stored]:
    """What got a destination; an alert that no route matches is refused: none goes nowhere in silence.

    `indexes` are those of `stored` in the body.
    """
    placed = [one for one in stored if one.destinations or one.dead]
    if len(placed) < len(stored):
        pairs = zip(indexes, stored, strict=True)
        lost = [index for index, one in pairs if not one.destinations and not one.dead]
        reason = "no route leads anywhere for this alert"
        parsed.rejected += [Rejected(index, reason, line=parsed.lines.get(index)) for index in lost]
        parsed.rejected.sort(key=lambda rejected: rejected.index)
        parsed.items = [item for item in parsed.items if item[0] not in lost]
        refuse_all_invalid(parsed)
    return placed


def refuse_all_invalid(parsed: Parsed[T]) -> None:
    """Raises Problem (400) when something was wrong and nothing right."""
    if parsed.items:
        return
    first = parsed.rejected[0]
    if parsed.single:
        raise Problem(400, first.error, errors=parsed.rejected)
    place = f"item {first.index}" if first.line is None else f"line {first.line}"
    raise Problem(
        400,
        f"no item is valid; {place}: {first.error}",
        accepted=0,
        duplicates=0,
        stored=0,
        rejected=parsed.rejected,
    )

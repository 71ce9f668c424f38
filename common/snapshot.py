"""A destination at one instant: depth, gate and ledger, from one script.

Takes a namespace and a destination's name; returns a Snapshot. The work does not grow with the backlog.
Raises what redis-py raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from msgspec import Struct
from redis.asyncio import Redis

from common import keys
from common.scripts import Script

_DIED = "died_"
_MOST = 2**63  # what Redis counts to
_script = Script("common", "snapshot")


class Ledger(Struct, frozen=True, kw_only=True):
    """Counters of one destination since its beginning."""

    accepted: int = 0
    replayed: int = 0
    delivered: int = 0
    duplicate: int = 0
    superseded: int = 0
    died: int = 0
    discarded: int = 0
    lost: int = 0

    @classmethod
    def of(cls, fields: Mapping[str, str | int]) -> Self:
        """From the hash, which has more than these. What is no number counts as 0, and `missing` tells."""
        return cls(**{name: _count(fields[name]) for name in cls.__struct_fields__ if name in fields})

    def missing(self, depth: int) -> int:
        """Deliveries that came in and are nowhere; negative when there are too many."""
        ended = self.delivered + self.duplicate + self.superseded + self.died + self.lost
        return self.accepted + self.replayed - ended - depth

    def missing_dead(self, dead_letters: int) -> int:
        """Dead letters that are nowhere; negative when there are too many."""
        return self.died - self.replayed - self.discarded - dead_letters


class Snapshot(Struct, frozen=True, kw_only=True):
    """Times in ms; `oldest_at` and `next_due` are None when nothing waits there."""

    destination: str
    now: int
    waiting: int
    retrying: int
    dead_letters: int
    in_flight: int
    consumers: int
    groups: int
    oldest_at: int | None
    next_due: int | None
    gate: dict[str, str]
    ledger: Ledger
    died: dict[str, int] = {}  # how many since the beginning, by reason

    @property
    def depth(self) -> int:
        """Deliveries not yet ended: in the stream or in `retry`."""
        return self.waiting + self.retrying

    @property
    def unaccounted(self) -> int:
        """Must be 0: what the ledger can't explain, in either direction."""
        missing = self.ledger.missing(self.depth)
        return abs(missing) + abs(self.ledger.missing_dead(self.dead_letters))


async def snapshot(redis: Redis, namespace: str, destination: str) -> Snapshot:
    """One round trip."""
    at = keys.Destination(namespace, destination)
    now, waiting, retrying, dead, pending, consumers, groups, oldest, due, gate, ledger = await _script(
        redis, [at.stream, at.retry, at.dead, at.gate, at.ledger], [keys.GROUP]
    )
    counters = _pairs(ledger)
    return Snapshot(
        destination=destination,
        now=now,
        waiting=waiting,
        retrying=retrying,
        dead_letters=dead,
        in_flight=pending,
        consumers=consumers,
        groups=groups,
        oldest_at=int(oldest.split(b"-")[0]) if oldest else None,
        next_due=None if due < 0 else due,
        gate=_pairs(gate),
        ledger=Ledger.of(counters),
        died={name[len(_DIED) :]: _count(told) for name, told in counters.items() if name.startswith(_DIED)},
    )


async def destinations(redis: Redis, namespace: str) -> list[str]:
    """Every destination ever appended to."""
    names = await redis.execute_command("SMEMBERS", keys.destinations(namespace))
    return sorted(name.decode("utf-8", "replace") for name in names)


def _count(told: str | int) -> int:
    """0 for what none of our scripts wrote."""
    try:
        number = int(told)
    except ValueError:
        return 0
    return number if abs(number) < _MOST else 0


def _pairs(flat: list[bytes]) -> dict[str, str]:
    words = iter(word.decode("utf-8", "replace") for word in flat)
    return dict(zip(words, words, strict=True))

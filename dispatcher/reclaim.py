"""Takes over what silent consumers left, and what nobody owns; beside the steps of the way.

Takes how long silence must last, how many slots are free and what is in work here; returns entries, a
suspect to be taken alone, and how many entries were lost. Raises what redis-py raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from redis.asyncio import Redis

from common.keys import GROUP, Destination
from common.scripts import Script
from dispatcher.entry import Entry, from_reply

_reclaim = Script("dispatcher", "reclaim")
_find = Script("dispatcher", "find")
_reap = Script("dispatcher", "reap")


class Reclaimed(Struct, frozen=True):
    """What one round gave; the next one starts at `following`, `gate` is the state of a closed one or ""."""

    gate: str
    following: str
    suspect: str
    lost: int
    entries: list[Entry]


async def reclaim(
    redis: Redis,
    keys: Destination,
    consumer: str,
    *,
    idle: int,
    most: int,
    start: str,
    in_work: Sequence[str],
    alone: str = "",
) -> Reclaimed:
    """Entries idle for `idle` ms, at most `most`, from id `start` on; with `alone` only that suspect."""
    gate, following, suspect, lost, taken = await _reclaim(
        redis,
        [keys.stream, keys.retry, keys.gate, keys.ledger],
        [GROUP, consumer, idle, most, alone or start, alone, *in_work],
    )
    entries = [from_reply(*entry) for entry in taken]
    return Reclaimed(gate.decode("utf-8", "replace"), following.decode(), suspect.decode(), lost, entries)


async def find(
    redis: Redis, keys: Destination, consumer: str, *, most: int, start: str, in_work: Iterable[Entry] = ()
) -> tuple[str, list[Entry]]:
    """Where the next round starts, and entries that were handed out and are pending under nobody; those in
    work here are pending under us again instead."""
    held = [part for entry in in_work for part in (entry.id, entry.deliveries)]
    following, taken = await _find(redis, [keys.stream], [GROUP, consumer, most, start, *held])
    return following.decode(), [from_reply(*entry) for entry in taken]


async def reap(redis: Redis, keys: Destination, *, silence: int, only: str = "") -> list[str]:
    """Remove consumers that own nothing and have been silent for `silence` ms; their names."""
    names = await _reap(redis, [keys.stream], [GROUP, silence, only])
    return [name.decode("utf-8", "replace") for name in names]

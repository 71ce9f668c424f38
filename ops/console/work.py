"""What is being tried now: deliveries in flight, and those that wait for their next attempt.

Takes a destination; returns a bounded number of them, each with what its record says of the last attempt.
Nothing keeps attempts that are over (decision 0104). Raises what redis-py raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from redis import exceptions as errors
from redis.asyncio import Redis

from common import keys
from common.record import Record, parse
from common.trouble import Kind, kind_of
from ops.retire import key_of
from ops.text import decoded

MOST = 20  # of each kind and destination: an entry of a foreign hand may be large


class Tried(Struct, frozen=True):
    """One delivery; `due_at` when it waits for another attempt, ms. `record` None: it is gone, or none."""

    destination: str
    key: str
    due_at: int | None
    deliveries: int
    consumer: str
    record: Record | None


async def in_work(redis: Redis, namespace: str, name: str, most: int = MOST) -> list[Tried]:
    """Those in flight, then those that wait, the next one first."""
    link: Any = redis
    at = keys.Destination(namespace, name)
    pending, waiting = await asyncio.gather(
        _pending(link, at.stream, most), link.zrange(at.retry, 0, most - 1, withscores=True)
    )
    entries = await asyncio.gather(*(link.xrange(at.stream, each, each) for each, _, _ in pending))
    found = [
        Tried(name, decoded(entry[0][1].get(b"key", b"")), None, deliveries, consumer, None)
        for entry, (_, consumer, deliveries) in zip(entries, pending, strict=True)
        if entry
    ]
    found += [Tried(name, key_of(member), int(due), 0, "", None) for member, due in waiting]
    records = await asyncio.gather(*(link.get(at.record(one.key)) for one in found))
    return [_with(one, record) for one, record in zip(found, records, strict=True)]


async def _pending(link: Any, stream: str, most: int) -> Sequence[tuple[str, str, int]]:
    """Id, consumer and delivery count of what was handed out; none without a group."""
    try:
        told = await link.xpending_range(stream, keys.GROUP, min="-", max="+", count=most)
    except errors.ResponseError as fault:
        if kind_of(fault) is Kind.NOGROUP:
            return []
        raise
    return [
        (decoded(one["message_id"]), decoded(one["consumer"]), int(one["times_delivered"])) for one in told
    ]


def _with(one: Tried, stored: bytes | None) -> Tried:
    try:
        record = None if stored is None else parse(stored)
    except ValueError:  # a foreign hand's
        record = None
    return Tried(one.destination, one.key, one.due_at, one.deliveries, one.consumer, record)

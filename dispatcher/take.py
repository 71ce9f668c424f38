"""Takes what is due and what is new for one destination: the first step.

Takes the number of free slots; returns entries, or when to look again. Behind a closed gate it takes
nothing. Raises what redis-py raises.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from redis import exceptions as errors
from redis.asyncio import Redis

from common.keys import GROUP, Destination
from common.scripts import Script
from common.wire import Wire
from dispatcher.entry import Entry, from_reply

_script = Script("dispatcher", "take")


class Taken(Struct, frozen=True):
    """What one call gave: `gate` is the state of a closed one or "", `now` the server's clock and `next_due`
    the next retry's time, ms (-1 for none); `last` is the stream's end before the read."""

    gate: str
    now: int
    next_due: int
    last: str
    entries: list[Entry]


async def take(wire: Wire, keys: Destination, consumer: str, most: int, *, closed: bool = False) -> Taken:
    """Up to `most` entries, promoted retries among them.

    The read goes in the same pipeline as the look at the gate (through Lua every field would be copied
    twice), so that a gate that closes between two calls finds entries taken: `gate` tells, and the caller
    hands them back. One that is known to be `closed` is only looked at.
    """
    touched = [keys.stream, keys.retry, keys.gate]
    if closed:
        return _taken(await _script(wire, touched, [most]), None)
    looked, read = await wire.pipeline(
        [
            ("EVALSHA", _script.digest, 3, *touched, most),
            ("XREADGROUP", "GROUP", GROUP, consumer, "COUNT", most, "STREAMS", keys.stream, ">"),
        ]
    )
    if isinstance(looked, errors.NoScriptError):
        looked = await _script(wire, touched, [most])
    for answer in (looked, read):
        if isinstance(answer, Exception):
            raise answer
    return _taken(looked, read)


def _taken(looked: list[Any], read: list[Any] | None) -> Taken:
    gate, now, next_due, last = looked
    entries = [from_reply(*entry) for entry in read[0][1]] if read else []
    return Taken(gate.decode(), now, next_due, last.decode(), entries)


async def wait_for_bell(redis: Redis, keys: Destination, last: str, ms: int) -> None:
    """Return when the stream grows beyond `last`, or after `ms`. Reads for nobody."""
    await redis.execute_command("XREAD", "COUNT", 1, "BLOCK", ms, "STREAMS", keys.stream, last)


async def make_group(redis: Redis, keys: Destination) -> bool:
    """Make the group, from the stream's beginning so that nothing is skipped; False if it was there."""
    try:
        await redis.xgroup_create(keys.stream, GROUP, id="0", mkstream=True)
    except errors.ResponseError as fault:
        if str(fault).startswith("BUSYGROUP"):
            return False
        raise
    return True

"""Takes what is due and what is new for one destination: the first step.

Takes the number of free slots; returns entries, or when to look again. Behind a closed gate it takes
nothing. Raises what redis-py raises.
"""

from __future__ import annotations

from msgspec import Struct
from redis import exceptions as redis_errors
from redis.asyncio import Redis

from common.keys import GROUP, Destination
from common.scripts import Script
from dispatcher.entry import Entry, from_reply

_script = Script("dispatcher", "take")


class Taken(Struct, frozen=True):
    """What one call gave: `gate` is the state of a closed one or "", `now` the server's clock and `next_due`
    the next retry's time, ms (-1 for none); `last` is the stream's end when all has been read, else ""."""

    gate: str
    now: int
    next_due: int
    last: str
    entries: list[Entry]


async def take(redis: Redis, keys: Destination, consumer: str, most: int) -> Taken:
    """Up to `most` entries, promoted retries among them."""
    gate, now, next_due, last, entries = await _script(
        redis, [keys.stream, keys.retry, keys.gate], [GROUP, consumer, most]
    )
    return Taken(gate.decode(), now, next_due, last.decode(), [from_reply(*entry) for entry in entries])


async def wait_for_bell(redis: Redis, keys: Destination, last: str, ms: int) -> None:
    """Return when the stream grows beyond `last`, or after `ms`. Reads for nobody."""
    await redis.execute_command("XREAD", "COUNT", 1, "BLOCK", ms, "STREAMS", keys.stream, last)


async def make_group(redis: Redis, keys: Destination) -> bool:
    """Make the group, from the stream's beginning so that nothing is skipped; False if it was there."""
    try:
        await redis.xgroup_create(keys.stream, GROUP, id="0", mkstream=True)
    except redis_errors.ResponseError as fault:
        if str(fault).startswith("BUSYGROUP"):
            return False
        raise
    return True

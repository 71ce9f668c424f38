"""Takes what is due and what is new for one destination: the first step.

Takes the number of free slots; returns entries, or when to look again. The fast way is for a destination
without a rate whose gate was open; the careful way never takes more than gate, ramp and rate of the fleet
allow. Raises what redis-py raises.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from redis import exceptions as errors
from redis.asyncio import Redis

from common.keys import GROUP, Destination
from common.scripts import Argument, Script
from common.wire import Wire
from dispatcher.entry import Entry, from_reply

_script = Script("dispatcher", "take")


class Care(Struct, frozen=True):
    """What the careful way needs to know: attempts per second or None, for how many ms a probe is one's own,
    and how many attempts were made besides, of what was reclaimed (the rate's tokens pay for them, too)."""

    rate: float | None
    lease: int
    besides: int = 0


class Taken(Struct, frozen=True):
    """What one call gave. `gate` is the state of a closed one or "", with its `reason` and `until`, ms or 0;
    `ramp` tells whether it has just opened. `now` is the server's clock and `next_due` the next retry's time,
    ms (-1 for none); `last` is the stream's end before the read; `wait` the ms until more may be read, -1
    when nothing is held back. With `probe` the one entry is the fleet's probe."""

    gate: str
    reason: str
    until: int
    ramp: bool
    now: int
    next_due: int
    last: str
    wait: int
    probe: bool
    entries: list[Entry]


async def take(wire: Wire, keys: Destination, consumer: str, most: int, *, care: Care | None = None) -> Taken:
    """Up to `most` entries, promoted retries among them; the careful way with `care`.

    On the fast way the read goes in the same pipeline as the look at the gate (through Lua every field would
    be copied twice), so that a gate that closes between two calls finds entries taken: `gate` or `ramp` tell,
    and the caller hands them back.
    """
    touched = [keys.stream, keys.retry, keys.gate, keys.rate]
    if care is not None:
        rate = "" if care.rate is None else repr(float(care.rate))
        args: list[Argument] = [most, GROUP, consumer, rate, care.lease, care.besides]
        return _taken(await _script(wire, touched, args), None)
    looked, read = await wire.pipeline(
        [
            ("EVALSHA", _script.digest, len(touched), *touched, most),
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
    gate, reason, until, ramp, now, next_due, last, wait, probe, entries = looked
    if read:
        entries = read[0][1]
    return Taken(
        gate.decode("utf-8", "replace"),
        reason.decode("utf-8", "replace"),
        until,
        bool(ramp),
        now,
        next_due,
        last.decode(),
        wait,
        bool(probe),
        [from_reply(*entry) for entry in entries],
    )


async def wait_for_bell(wire: Wire, keys: Destination, last: str, ms: int) -> None:
    """Return when the stream grows beyond `last`, or after `ms`. Reads for nobody."""
    await wire.execute_command("XREAD", "COUNT", 1, "BLOCK", ms, "STREAMS", keys.stream, last)


async def make_group(redis: Redis, keys: Destination) -> bool:
    """Make the group, from the stream's beginning so that nothing is skipped; False if it was there."""
    try:
        await redis.xgroup_create(keys.stream, GROUP, id="0", mkstream=True)
    except errors.ResponseError as fault:
        if str(fault).startswith("BUSYGROUP"):
            return False
        raise
    return True

"""Points in time as senders write them, to milliseconds since the epoch.

Takes seconds, milli-, micro- or nanoseconds, told apart by size, or RFC 3339 (a time without zone is UTC).
Always rounds down, so that a time means the same however it is written. Raises ValueError that says what
is wrong.
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from math import floor, isfinite

DAY = 86_400_000
_AHEAD = "more than a day ahead"
_EPOCH_DAY = datetime(1970, 1, 1).toordinal()
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:([Zz])|([+-])(\d\d):?(\d\d))?", re.ASCII
)


def milliseconds(told: int | float | str, now: int) -> int:
    """The point in time in ms. Raises ValueError: negative, no time, or more than a day after `now`."""
    if isinstance(told, str):
        at = _text(told)
    elif isinstance(told, int):
        at = _whole(told)
    else:
        at = _fraction(told)
    if at < 0:
        raise ValueError("before 1970")
    if at > now + DAY:
        raise ValueError(_AHEAD)
    return at


def _whole(told: int) -> int:
    # seconds up to 1e11 (year 5138), milliseconds from there (1973) to 1e14, microseconds to 1e17
    if told < 100_000_000_000:
        return told * 1000
    if told < 100_000_000_000_000:
        return told
    if told < 100_000_000_000_000_000:
        return told // 1000
    if told < 1 << 64:
        return told // 1_000_000
    raise ValueError(_AHEAD)


def _fraction(told: float) -> int:
    if not isfinite(told):
        raise ValueError("not a finite number")
    if told.is_integer():
        return _whole(int(told))
    # the shortest text of a float is what was meant: 1.001 s is 1001 ms, though 1.001 * 1000 is less
    exact = Decimal(repr(told))
    if told < 100_000_000_000:
        return floor(exact * 1000)
    return floor(exact if told < 100_000_000_000_000 else exact / 1000)  # beyond 2**53 none has a fraction


def _text(told: str) -> int:
    match = _RFC3339.fullmatch(told)
    if match is None:
        raise ValueError("expected seconds since the epoch or RFC 3339 such as 2026-03-02T08:14:37Z")
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    fraction, _, sign, hours, minutes = match.groups()[6:]
    leap = second == 60
    try:
        date = datetime(year, month, day, hour, minute, 59 if leap else second)
    except ValueError as fault:
        raise ValueError(f"no such time: {fault}") from None
    at = (date.toordinal() - _EPOCH_DAY) * 86_400 + hour * 3600 + minute * 60 + second
    if sign is not None:
        at -= _offset(sign, int(hours), int(minutes))
    return at * 1000 + int(((fraction or "") + "00")[:3].ljust(3, "0"))


def _offset(sign: str, hours: int, minutes: int) -> int:
    if hours > 23 or minutes > 59:
        raise ValueError("no such offset from UTC")
    seconds = hours * 3600 + minutes * 60
    return seconds if sign == "+" else -seconds

"""How hard a destination is tried: the presets, and the settings that differ from them.

Takes a destination's settings; returns a `Policy`. `decide` turns it into delays, `append` and `settle`
into how long a record lives.
"""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from common.settings import Destination
from common.units import Duration

_HOUR = 3600.0


class Slot(Struct, frozen=True):
    """When an attempt may take place, seconds after the first one began.

    `wait` is the longest wait before it, `capped` whether that would be longer without `cap`. `expected` is
    without regard to `max_age`, `latest` never beyond it; `within` whether it surely comes before that.
    """

    attempt: int
    wait: float
    capped: bool
    earliest: float
    expected: float
    latest: float
    within: bool


class Policy(Struct, frozen=True):
    """`attempts` failures at most, each followed by a wait of up to its ceiling (full jitter: half of it on
    average), and nothing later than `max_age` after the first append.

    The ceiling of failure n is `min(cap, base * 2**(n-1))` seconds, or `schedule[n-1]` where there is one.
    """

    attempts: int
    base: float
    cap: float
    max_age: Duration
    schedule: tuple[float, ...] = ()

    def ceiling(self, attempt: int) -> float:
        """The longest wait, seconds, after failure number `attempt` (1-based)."""
        if self.schedule:
            return min(self.cap, self.schedule[min(attempt, len(self.schedule)) - 1])
        # Beyond 2**63 every base has met its cap, and a float would overflow at 2**1024.
        return min(self.cap, self.base * 2.0 ** min(attempt - 1, 63))

    def expected(self) -> list[float]:
        """When each attempt takes place on average, seconds after the first."""
        times = [0.0]
        for attempt in range(1, self.attempts):
            times.append(times[-1] + self.ceiling(attempt) / 2)
        return times

    def timeline(self, timeout: float = 0.0) -> list[Slot]:
        """All attempts of a delivery that fails for good, each of them after at most `timeout` seconds.

        Full jitter: a wait may be nothing at all, and half of it is expected, beside attempts that take no
        time. None begins later than `max_age` after the first, which is taken to begin at once.
        """
        slots, latest = [Slot(1, 0.0, False, 0.0, 0.0, 0.0, True)], 0.0
        for failures, expected in enumerate(self.expected()[1:], 1):
            wait = self.ceiling(failures)
            latest += timeout + wait
            within, last = latest <= self.max_age, min(latest, self.max_age)
            capped = wait < replace(self, cap=math.inf).ceiling(failures)
            slots.append(Slot(failures + 1, wait, capped, 0.0, expected, last, within))
        return slots


# page: someone has to know now, and after an hour it is history.
#   after failure    1     2     3     4     5     6     7
#   waits up to     1s    2s    4s    8s   16s   32s   64s
#   expected at   0.5s  1.5s  3.5s  7.5s   15s   31s   63s
# webhook: the ten attempts of Standard Webhooks, 75h35m when every wait is the longest.
#   after failure    1     2     3     4     5     6     7     8     9
#   waits up to     5s    5m   30m    2h    5h   10h   14h   20h   24h
#   expected at   2.5s  2.5m 17.5m  1.3h  3.8h  8.8h 15.8h 25.8h 37.8h
# With a `base` of one's own the schedule gives way to the formula.
PRESETS = {
    "page": Policy(attempts=8, base=1.0, cap=300.0, max_age=Duration(_HOUR)),
    "webhook": Policy(
        attempts=10,
        base=5.0,
        cap=24 * _HOUR,
        max_age=Duration(76 * _HOUR),
        schedule=(
            5.0,
            300.0,
            1800.0,
            2 * _HOUR,
            5 * _HOUR,
            10 * _HOUR,
            14 * _HOUR,
            20 * _HOUR,
            24 * _HOUR,
        ),
    ),
}


def retry_policy(destination: Destination) -> Policy:
    """The destination's own `retry` settings, and its preset's for what is absent there."""
    retry = destination.retry
    preset = PRESETS[retry.preset]
    return Policy(
        attempts=preset.attempts if retry.attempts is None else retry.attempts,
        base=preset.base if retry.base is None else retry.base,
        cap=preset.cap if retry.cap is None else retry.cap,
        max_age=preset.max_age if retry.max_age is None else retry.max_age,
        schedule=preset.schedule if retry.base is None else (),
    )


def record_ttl(policy: Policy, remember: Duration) -> Duration:
    """How long a delivery's record lives, seconds: as long as it may be tried, and is remembered after."""
    return Duration(policy.max_age + remember)

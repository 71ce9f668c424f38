"""How hard a destination is tried: the presets, and the settings that differ from them.

Takes a destination's settings; returns a `Policy`. `decide` turns it into delays, `append` and `settle`
into how long a record lives.
"""

from __future__ import annotations

from msgspec import Struct

from common.settings import Destination
from common.units import Duration

_HOUR = 3600.0


class Policy(Struct, frozen=True):
    """`attempts` failures at most, each followed by a wait of up to `min(cap, base * 2**(n-1))` seconds
    (full jitter: half of it on average), and nothing later than `max_age` after the first append."""

    attempts: int
    base: float
    cap: float
    max_age: Duration

    def ceiling(self, attempt: int) -> float:
        """The longest wait, seconds, after failure number `attempt` (1-based)."""
        # Beyond 2**63 every base has met its cap, and a float would overflow at 2**1024.
        return min(self.cap, self.base * 2.0 ** min(attempt - 1, 63))

    def expected(self) -> list[float]:
        """When each attempt takes place on average, seconds after the first."""
        times = [0.0]
        for attempt in range(1, self.attempts):
            times.append(times[-1] + self.ceiling(attempt) / 2)
        return times


# page: someone has to know now, and after an hour it is history.
#   after failure    1     2     3     4     5     6     7
#   waits up to     1s    2s    4s    8s   16s   32s   64s
#   expected at   0.5s  1.5s  3.5s  7.5s   15s   31s   63s
# webhook: Standard Webhooks tries ten times within 75h35m (5s 5m 30m 2h 5h 10h 14h 20h 24h).
#   after failure    1     2     3     4     5     6     7     8     9
#   waits up to    15m   30m    1h    2h    4h    8h   16h   32h   48h
#   expected at   7.5m 22.5m 52.5m  1.9h  3.9h  7.9h 15.9h 31.9h 55.9h
# The last attempt falls within the 76h in about seven of eight cases; max_age ends the others.
PRESETS = {
    "page": Policy(attempts=8, base=1.0, cap=300.0, max_age=Duration(_HOUR)),
    "webhook": Policy(attempts=10, base=900.0, cap=48 * _HOUR, max_age=Duration(76 * _HOUR)),
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
    )


def record_ttl(policy: Policy, remember: Duration) -> Duration:
    """How long a delivery's record lives, seconds: as long as it may be tried, and is remembered after."""
    return Duration(policy.max_age + remember)

"""Keeps storms of like log lines short: so many per second get through, the rest is counted and told.

Beside deliver, and where ingest refuses. Lines are of one kind when they differ in no more than whom they are
about; each kind has a token bucket of its own, so that successes never crowd out failures, nor a frequent
failure the first of another sort. Asking costs a fraction of a microsecond, before anything is formatted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter

from common.log import Log, rate

BURST = 10.0  # seconds' worth of lines that may come at once
EVERY = 10.0  # seconds between two lines about what was left out

log = Log("storm")


class Kind:
    """A bucket, and how many lines did not get through since that was last told."""

    __slots__ = ("_at", "_clock", "_most", "_rate", "_tokens", "left_out")

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._most = self._tokens = max(1.0, rate * BURST) if rate else 0.0
        self._clock = clock
        self._at = clock()
        self.left_out = 0

    def admits(self) -> bool:
        """Whether one more line may be written now."""
        now = self._clock()
        tokens = self._tokens + (now - self._at) * self._rate
        self._at = now
        if tokens < 1.0:
            self._tokens = tokens
            self.left_out += 1
            return False
        self._tokens = (tokens if tokens < self._most else self._most) - 1.0
        return True


class Storms:
    """The kinds of one process. `rate` is lines per second of each; None: what the environment says."""

    def __init__(self, rate: float | None = None, clock: Callable[[], float] = perf_counter) -> None:
        self._rate = rate
        self._clock = clock
        self._kinds: dict[tuple[str, int, tuple[tuple[str, object], ...]], Kind] = {}

    def kind(self, event: str, level: int, **names: object) -> Kind:
        """The same for the same event and names, of which there must be few."""
        known = (event, level, tuple(names.items()))
        if known not in self._kinds:
            self._kinds[known] = Kind(rate() if self._rate is None else self._rate, self._clock)
        return self._kinds[known]

    def tell(self) -> None:
        """A line for each kind that had to leave lines out since the last time."""
        for (event, level, names), kind in list(self._kinds.items()):
            if kind.left_out:
                count, kind.left_out = kind.left_out, 0
                log.write(level, "lines_left_out", {"of": event, **dict(names), "count": count})

    async def keep_telling(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            self.tell()


storms = Storms()
ERROR, INFO, WARNING = logging.ERROR, logging.INFO, logging.WARNING

"""The last minutes of one destination as a line: what the small charts are drawn from. Pure.

Takes snapshots, one a second; returns the points of an SVG polyline, and figures beside it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from common.snapshot import Snapshot

STEP = 5  # seconds that one point stands for
POINTS = 60
WIDTH, HEIGHT = 120, 32  # of the drawing, in its own units
RATED = 10  # seconds that the rate is taken over


class Track:
    """Depth and deliveries per second, over STEP * POINTS seconds."""

    def __init__(self) -> None:
        self._recent: deque[tuple[int, int]] = deque(maxlen=RATED + 1)  # server's time in ms, delivered
        self._depths: deque[int] = deque(maxlen=POINTS)
        self._rates: deque[float] = deque(maxlen=POINTS)
        self._began: tuple[int, int] | None = None  # of the step under way

    def add(self, seen: Snapshot) -> None:
        """One more look."""
        now, delivered = seen.now, seen.ledger.delivered
        self._recent.append((now, delivered))
        if self._began is None or now < self._began[0]:
            self._began = now, delivered
        if not self._depths:
            self._depths.append(seen.depth)
            self._rates.append(0.0)
        self._depths[-1] = max(self._depths[-1], seen.depth)
        self._rates[-1] = _rate(self._began, (now, delivered))
        if now - self._began[0] >= STEP * 1000:
            self._began = now, delivered
            self._depths.append(seen.depth)
            self._rates.append(self._rates[-1])

    @property
    def rate(self) -> float:
        """Deliveries per second, over the last RATED seconds."""
        return _rate(self._recent[0], self._recent[-1]) if self._recent else 0.0

    @property
    def depths(self) -> str:
        """The line of the depth."""
        return line(self._depths, least=5)

    @property
    def rates(self) -> str:
        """The line of the deliveries per second."""
        return line(self._rates, least=1)

    @property
    def most(self) -> tuple[int, float]:
        """The highest of both."""
        return max(self._depths, default=0), max(self._rates, default=0.0)


def line(values: Sequence[float], least: float = 1) -> str:
    """`x,y x,y ...`, the newest at the right; at the top is the highest, or `least` if that is more."""
    top = max(*values, least)
    step = WIDTH / (POINTS - 1)
    start = WIDTH - step * (len(values) - 1)
    room = HEIGHT - 4  # so that the stroke stays inside
    return " ".join(
        f"{start + step * n:.1f},{HEIGHT - 2 - room * value / top:.1f}" for n, value in enumerate(values)
    )


def _rate(before: tuple[int, int], after: tuple[int, int]) -> float:
    passed = (after[0] - before[0]) / 1000
    return max(0.0, (after[1] - before[1]) / passed) if passed > 0 else 0.0

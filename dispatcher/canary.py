"""Where canaries end: lanes beside those of the destinations, with the same code, a sink and two metrics.

Takes what ingest appended for each destination's way. A canary has arrived when the destination's own lane in
this process asks Redis for work, with a slot free for it; nothing is sent. What the lanes of canaries count
beside that is shown nowhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Gauge

from common import canary
from common.histogram import Histogram
from common.outcomes import Delivered, Outcome, OutcomeKind
from dispatcher.destinations.base import Delivery
from dispatcher.lane import Lane
from dispatcher.metrics import END_TO_END, Metrics
from dispatcher.metrics import Lane as LaneMetrics
from dispatcher.settle import Settled
from dispatcher.settling import Settling

RECENT = 3.0  # seconds since a lane's last take, which it makes each second when it has nothing to do
LOOK = 0.1  # seconds between two looks at a lane that has made none
_ARRIVED = Outcome(OutcomeKind.DELIVERED)
_HALTED = Outcome(OutcomeKind.FAILED, error="the destination's lane takes nothing just now, on purpose")
_STUCK = Outcome(
    OutcomeKind.TIMEOUT,
    error="the destination's lane takes nothing: all slots in use, or it stands still",
)


class Sink:
    """The end of one destination's canaries; `lane` gives its own lane, as long as there is one."""

    def __init__(self, lane: Callable[[], Lane | None], timeout: float) -> None:
        self._lane = lane
        self._timeout = timeout

    async def deliver(self, delivery: Delivery) -> Outcome:
        """Arrived, as soon as a real one would have been taken."""
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    lane = self._lane()
                    if lane is None or lane.halted:
                        return _HALTED
                    if time.monotonic() - lane.took_at <= RECENT:
                        return _ARRIVED
                    await asyncio.sleep(LOOK)
        except TimeoutError:
            return _STUCK

    def instead(self, delivery: Delivery, outcome: Outcome) -> Outcome:
        """A canary that has become stale just ends."""
        return _ARRIVED

    async def close(self) -> None:
        """Nothing to let go of."""


class Figures(Metrics):
    """What the lanes of canaries count, in a registry of its own, and what is `shown` of it."""

    def __init__(self, shown: CollectorRegistry) -> None:
        super().__init__()
        text = "From a canary's acceptance to its arrival, short of the receiver"
        name = "redispatch_canary_end_to_end_seconds"
        self._end_to_end_of = Histogram(name, text, END_TO_END, shown, "destination", ())
        name = "redispatch_canary_last_success_timestamp_seconds"
        text = "When this dispatcher last saw a canary arrive; 0: none yet"
        self._last = Gauge(name, text, ["destination"], registry=shown)
        self._shown: set[str] = set()

    def configure(self, names: Iterable[str]) -> None:
        """These are the destinations with a canary from now on."""
        wanted = set(names)
        for name in self._shown - wanted:
            self._last.remove(name)
        for name in wanted - self._shown:
            self._last.labels(name).set(0)
            self._end_to_end_of.add(name)
        self._shown = wanted

    def add(self, name: str) -> None:
        """One more canary, if it is not there already."""
        super().add(name)
        self.of[name] = _Lane(self, name)

    def arrived(self, name: str, seconds: Sequence[float]) -> None:
        """Canaries of that destination have arrived, after so long."""
        if seconds and name in self._shown:
            self._end_to_end_of.of[name].observe(seconds)
            self._last.labels(name).set_to_current_time()


class _Lane(LaneMetrics):
    def __init__(self, all_of: Figures, name: str) -> None:
        super().__init__(all_of, name)
        self._figures, self._beside = all_of, canary.beside(name)

    def settled(self, batch: Sequence[Settling], answers: Sequence[Settled], now: int) -> None:
        """Only what arrived counts; one that became stale was not delivered by an attempt."""
        seconds = [
            (now - item.delivery.first_at) / 1000
            for item, answer in zip(batch, answers, strict=True)
            if answer is Settled.DONE and item.delivery is not None and _has_arrived(item)
        ]
        self._figures.arrived(self._beside, seconds)


def _has_arrived(item: Settling) -> bool:
    kind = None if item.attempt is None else item.attempt.kind
    return isinstance(item.settlement, Delivered) and kind is OutcomeKind.DELIVERED

"""What a batch of settlements says about the destination itself: beside settle, whose script tells the gate.

Takes settlements in the order in which they were posted; returns News. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from common.outcomes import Delivered, OutcomeKind, Settlement
from common.scripts import Argument
from common.settings import Breaker
from dispatcher.settling import Attempt, Settling

GONE = 3  # different deliveries in a row that met gate_on close the gate
LONGEST_REASON = 200  # characters
_FAILURES = frozenset(
    (
        OutcomeKind.FAILED,
        OutcomeKind.TIMEOUT,
        OutcomeKind.CONNECTION,
        OutcomeKind.REFUSED,
        OutcomeKind.THROTTLED,
    )
)
_THERE = frozenset((OutcomeKind.DELIVERED, OutcomeKind.REJECTED, OutcomeKind.GONE))


class Probe(StrEnum):
    """What came of the probe: the destination is there, it failed, it wants to be left alone, or no request
    was made and somebody else may try."""

    OK = "ok"
    FAILED = "failed"
    THROTTLED = "throttled"
    BACK = "back"


class News(Struct):
    """What was learnt besides successes: failures since the last success and the last one's error; for how
    many seconds the gate is to be closed and why; the keys that met `gate_on` since the last success, up to
    three different ones, and the last error of those; and the probe's result when it is among them."""

    failures: int = 0
    failed: str = ""
    throttled: float = 0.0
    refused: str = ""
    gone: tuple[str, ...] = ()
    said_gone: str = ""
    probe: Probe | None = None

    def words(self, breaker: Breaker) -> list[Argument]:
        """As the settle script's header has them; none when there is nothing to tell."""
        if not (self.failures or self.throttled or self.gone or self.probe):
            return []
        return [
            self.probe or "",
            self.failures,
            self.failed[:LONGEST_REASON],
            breaker.failures,
            breaker.open.ms,
            round(self.throttled * 1000),
            self.refused[:LONGEST_REASON],
            self.said_gone[:LONGEST_REASON],
            *self.gone,
        ]


def news(batch: Sequence[Settling]) -> News:
    """What these settlements say, one after the other."""
    told = News()
    for item in batch:
        if item.probe:
            told.probe = _result(item.attempt)
        if isinstance(item.settlement, Delivered):
            told.failures, told.gone = 0, ()
        elif item.attempt is not None and not item.attempt.shared:  # a batch is one request
            _hear(told, item, item.attempt)
    return told


def _hear(told: News, item: Settling, attempt: Attempt) -> None:
    error = _error(item.settlement)
    if attempt.closes:
        told.throttled, told.refused = max(told.throttled, attempt.closes), error
    elif attempt.kind in _FAILURES:
        told.failures, told.failed = told.failures + 1, error
    elif attempt.kind is OutcomeKind.GONE and item.delivery is not None:
        told.said_gone = error
        if item.delivery.key not in told.gone and len(told.gone) < GONE:
            told.gone += (item.delivery.key,)


def _result(attempt: Attempt | None) -> Probe:
    if attempt is None or attempt.kind is OutcomeKind.RENDER:
        return Probe.BACK
    if attempt.closes:
        return Probe.THROTTLED
    return Probe.OK if attempt.kind in _THERE else Probe.FAILED


def _error(settlement: Settlement) -> str:
    return str(getattr(settlement, "error", ""))

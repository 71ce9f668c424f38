"""What the dispatcher counts: closed label sets, every series there from the start (of a destination).

Per destination the children are bound once, and a batch of settlements is counted as one.
"""

from __future__ import annotations

from collections import Counter as TallyOf
from collections.abc import Sequence
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics

from common.histogram import Histogram
from common.outcomes import Dead, Delivered, Duplicate, Later, OutcomeKind, Result, Superseded
from common.trouble import Kind
from dispatcher.settle import Settled
from dispatcher.settling import Settling

# a second series for each counter, which nobody asks for
disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus_client leaves it so
L = TypeVar("L")

END_TO_END = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
ATTEMPT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """All of one process. `registry` is what `/metrics` shows."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"redispatch_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"redispatch_{name}", text, labels, registry=registry)

        self.group_recreated = counter("group_recreated", "Consumer groups that were gone and made again")
        errors = counter("redis_errors", "Errors of Redis by kind", "kind")
        self.errors = {kind: errors.labels(kind) for kind in Kind}
        unsafe = gauge("redis_unsafe", "1 when Redis may lose alerts this way", "kind")
        self.unsafe = {kind: unsafe.labels(kind) for kind in ("no_aof", "eviction", "second_group")}
        self.reload_failed = gauge(
            "config_reload_failed", "1: the configuration's file can't be used, and the one before is"
        )
        self.progress = gauge("last_progress_timestamp_seconds", "When Redis last answered a take")
        self._attempts = counter("attempts", "Attempts by outcome", "destination", "outcome")
        self._deliveries = counter("deliveries", "Deliveries ended, by result", "destination", "result")
        self._retries = counter("retries", "Retries by outcome before", "destination", "reason")
        self._reclaimed = counter("reclaimed", "Entries taken over", "destination")
        self._fenced = counter("fenced", "Settlements that came too late", "destination")
        self._attempt = Histogram(
            "redispatch_attempt_seconds", "One attempt", ATTEMPT, registry, "destination", ()
        )
        self._end_to_end = Histogram(
            "redispatch_end_to_end_seconds",
            "From acceptance to delivery",
            END_TO_END,
            registry,
            "destination",
            (),
        )
        self.of: dict[str, Lane] = {}

    def add(self, name: str) -> None:
        """One more destination, if it is not there already."""
        if name not in self.of:
            self._attempt.add(name)
            self._end_to_end.add(name)
            self.of[name] = Lane(self, name)


class Lane:
    """The series of one destination."""

    def __init__(self, all_of: Metrics, name: str) -> None:
        self.attempts = {kind: all_of._attempts.labels(name, kind) for kind in OutcomeKind}
        self.deliveries = {result: all_of._deliveries.labels(name, result) for result in Result}
        self.retries = {kind: all_of._retries.labels(name, kind) for kind in OutcomeKind}
        self.reclaimed = all_of._reclaimed.labels(name)
        self.fenced = all_of._fenced.labels(name)
        self._attempt = all_of._attempt.of[name]
        self._end_to_end = all_of._end_to_end.of[name]

    def settled(self, batch: Sequence[Settling], answers: Sequence[Settled], now: int) -> None:
        """Count a batch of settlements; `now` is the server's time in ms."""
        attempts: TallyOf[OutcomeKind] = TallyOf()
        retries: TallyOf[OutcomeKind] = TallyOf()
        results: TallyOf[Result] = TallyOf()
        ages: list[float] = []
        for item, answer in zip(batch, answers, strict=True):
            settlement, attempt = item.settlement, item.attempt
            if attempt is not None:
                attempts[attempt.kind] += 1
                if isinstance(settlement, Later) or answer is Settled.SPARED:
                    retries[attempt.kind] += 1
            if answer is not Settled.DONE:
                continue
            result = _RESULTS.get(type(settlement))
            if result is not None:
                results[result] += 1
            if isinstance(settlement, Delivered) and item.delivery is not None:
                ages.append((now - item.delivery.first_at) / 1000)
        self._attempt.observe(item.attempt.seconds for item in batch if item.attempt is not None)
        self._end_to_end.observe(ages)
        self.fenced.inc(sum(answer is Settled.FENCED for answer in answers))
        _add(self.attempts, attempts)
        _add(self.retries, retries)
        _add(self.deliveries, results)


_RESULTS: dict[type, Result] = {
    Delivered: Result.DELIVERED,
    Duplicate: Result.DUPLICATE,
    Superseded: Result.SUPERSEDED,
    Dead: Result.DEAD,
}


def _add(counters: dict[L, Counter], tally: TallyOf[L]) -> None:
    for label, count in tally.items():
        counters[label].inc(count)

"""What the dispatcher counts: closed label sets, every series there from the start.

Per destination the children are bound once, so that counting costs no lookup.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from common.outcomes import OutcomeKind, Reason, Result
from common.trouble import Kind

END_TO_END = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
ATTEMPT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """All of one process. `registry` is what `/metrics` shows."""

    def __init__(self, destinations: Iterable[str]) -> None:
        self.registry = registry = CollectorRegistry()
        self.group_recreated = Counter(
            "redispatch_group_recreated", "Consumer groups that were gone and made again", registry=registry
        )
        self._errors = Counter(
            "redispatch_redis_errors", "Errors of Redis by kind", ["kind"], registry=registry
        )
        self.errors = {kind: self._errors.labels(kind) for kind in Kind}
        unsafe = Gauge(
            "redispatch_redis_unsafe", "1 when Redis may lose alerts this way", ["kind"], registry=registry
        )
        self.unsafe = {kind: unsafe.labels(kind) for kind in ("no_aof", "eviction", "second_group")}
        self.progress = Gauge(
            "redispatch_last_progress_timestamp_seconds", "When Redis last answered a take", registry=registry
        )
        self._attempts = Counter(
            "redispatch_attempts", "Attempts by outcome", ["destination", "outcome"], registry=registry
        )
        self._deliveries = Counter(
            "redispatch_deliveries",
            "Deliveries ended, by result",
            ["destination", "result"],
            registry=registry,
        )
        self._dead = Counter(
            "redispatch_dead", "Deliveries given up, by reason", ["destination", "reason"], registry=registry
        )
        self._retries = Counter(
            "redispatch_retries", "Retries by outcome before", ["destination", "reason"], registry=registry
        )
        self._reclaimed = Counter(
            "redispatch_reclaimed", "Entries taken over", ["destination"], registry=registry
        )
        self._fenced = Counter(
            "redispatch_fenced", "Settlements that came too late", ["destination"], registry=registry
        )
        self._attempt = Histogram(
            "redispatch_attempt_seconds", "One attempt", ["destination"], buckets=ATTEMPT, registry=registry
        )
        self._end_to_end = Histogram(
            "redispatch_end_to_end_seconds",
            "From acceptance to delivery",
            ["destination"],
            buckets=END_TO_END,
            registry=registry,
        )
        self.of = {name: Lane(self, name) for name in destinations}


class Lane:
    """The series of one destination."""

    def __init__(self, all_of: Metrics, name: str) -> None:
        self.attempts = {kind: all_of._attempts.labels(name, kind) for kind in OutcomeKind}
        self.deliveries = {result: all_of._deliveries.labels(name, result) for result in Result}
        self.dead = {reason: all_of._dead.labels(name, reason) for reason in Reason}
        self.retries = {kind: all_of._retries.labels(name, kind) for kind in OutcomeKind}
        self.reclaimed = all_of._reclaimed.labels(name)
        self.fenced = all_of._fenced.labels(name)
        self.attempt = all_of._attempt.labels(name)
        self.end_to_end = all_of._end_to_end.labels(name)

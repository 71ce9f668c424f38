"""What ingest counts; every label value exists from the start, and no sender can make one.

One `Metrics` per process, with a registry of its own that `/metrics` serves.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from redis import exceptions as errors

from common.http import OTHER

CODES = (200, 201, 207, 400, 404, 405, 408, 413, 415, 417, 500, 503)
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Source(StrEnum):
    """Where an alert came from; also `source` in the alert."""

    NATIVE = "native"
    READING = "reading"


class Outcome(StrEnum):
    """What became of an item of a request."""

    QUEUED = "queued"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    REFUSED = "refused"
    INVALID = "invalid"
    STORED = "stored"


class RedisFault(StrEnum):
    """What kept a command from its result."""

    TIMEOUT = "timeout"
    CONNECTION = "connection"
    LOADING = "loading"
    READONLY = "readonly"
    OOM = "oom"
    CLUSTER = "cluster"
    OTHER = "other"

    @classmethod
    def of(cls, fault: Exception) -> RedisFault:
        """The kind of an exception of redis-py."""
        return next((kind for kinds, kind in _KINDS if isinstance(fault, kinds)), cls.OTHER)


# the first that fits: several of them are kinds of ConnectionError
_KINDS: tuple[tuple[tuple[type[Exception], ...], RedisFault], ...] = (
    ((errors.TimeoutError,), RedisFault.TIMEOUT),
    ((errors.BusyLoadingError,), RedisFault.LOADING),
    ((errors.ReadOnlyError,), RedisFault.READONLY),
    ((errors.OutOfMemoryError,), RedisFault.OOM),
    ((errors.MovedError, errors.TryAgainError, errors.ClusterDownError), RedisFault.CLUSTER),
    ((errors.ConnectionError, OSError), RedisFault.CONNECTION),
)


class Metrics:
    """Counters, with their children bound."""

    def __init__(self, routes: Iterable[str] = ()) -> None:
        self.registry = CollectorRegistry()
        names = (*routes, OTHER)
        requests = self._counter("ingest_requests", "requests answered", "route", "code")
        seconds = Histogram(
            "redispatch_ingest_request_seconds",
            "from the request's head to its answer",
            ["route"],
            buckets=SECONDS,
            registry=self.registry,
        )
        alerts = self._counter("alerts", "what became of each item", "source", "outcome")
        faults = self._counter("redis_errors", "commands that brought no result", "kind")
        self._requests = {
            (route, code): requests.labels(route, str(code)) for route in names for code in CODES
        }
        self._seconds = {route: seconds.labels(route) for route in names}
        self.alerts = {(s, o): alerts.labels(s.value, o.value) for s in Source for o in Outcome}
        self.redis_errors = {kind: faults.labels(kind.value) for kind in RedisFault}
        self.append_batch_size = Histogram(
            "redispatch_append_batch_size", "events in one call", buckets=SIZES, registry=self.registry
        )
        self.append_seconds = Histogram(
            "redispatch_append_seconds", "one call of append", buckets=SECONDS, registry=self.registry
        )
        unsafe = Gauge("redispatch_redis_unsafe", "1: may cost alerts", ["kind"], registry=self.registry)
        self.redis_unsafe = {kind: unsafe.labels(kind) for kind in ("no_aof", "eviction")}

    def request(self, route: str, code: int, seconds: float) -> None:
        """One request was answered."""
        self._requests[route, code].inc()
        self._seconds[route].observe(seconds)

    def fault(self, fault: Exception) -> None:
        """Redis did not do what it was asked."""
        self.redis_errors[RedisFault.of(fault)].inc()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"redispatch_{name}", text, labels, registry=self.registry)

"""What ingest counts; every label value exists from the start, and no sender can make one.

One `Metrics` per process, with a registry of its own that `/metrics` serves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics

from common.histogram import Histogram
from common.http import OTHER
from common.trouble import Kind
from ingest.event import Source

CODES = (200, 201, 207, 400, 401, 404, 405, 408, 413, 415, 417, 429, 500, 503)
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0)
# a second series for each counter, which nobody asks for
disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus_client leaves it so
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Count(Protocol):
    """Adds to a counter."""

    def __call__(self, amount: float = 1) -> None:
        """One more, or `amount`."""


class Outcomes(Struct, frozen=True):
    """What became of the items of one source: a counter each, by its label's value."""

    queued: Count
    duplicate: Count
    conflict: Count
    refused: Count
    invalid: Count
    stored: Count


class Metrics:
    """Counters, with their children bound."""

    def __init__(self, routes: Iterable[str] = ()) -> None:
        self.registry = CollectorRegistry()
        names = (*routes, OTHER)
        requests = self._counter("ingest_requests", "requests answered", "route", "code")
        seconds = Histogram(
            "redispatch_ingest_request_seconds",
            "from the request's head to its answer",
            SECONDS,
            self.registry,
            "route",
            names,
        )
        alerts = self._counter("alerts", "what became of each item", "source", "outcome")
        faults = self._counter("redis_errors", "commands that brought no result", "kind")
        self._requests = {
            (route, code): requests.labels(route, str(code)) for route in names for code in CODES
        }
        self._seconds = seconds.of
        self.outcomes = {
            source: Outcomes(
                *(alerts.labels(source.value, field).inc for field in Outcomes.__struct_fields__)
            )
            for source in Source
        }
        self._faults = {kind: faults.labels(kind.value) for kind in Kind}
        self._append_batch_size = Histogram(
            "redispatch_append_batch_size", "events in one call", SIZES, self.registry
        ).of[""]
        self._append_seconds = Histogram(
            "redispatch_append_seconds", "one call of append", SECONDS, self.registry
        ).of[""]
        unsafe = Gauge("redispatch_redis_unsafe", "1: may cost alerts", ["kind"], registry=self.registry)
        self.reload_failed = Gauge(
            "redispatch_config_reload_failed",
            "1: the configuration's file can't be used, and the one before is",
            registry=self.registry,
        )
        self.redis_unsafe = {kind: unsafe.labels(kind) for kind in ("no_aof", "eviction")}

    def request(self, route: str, code: int, seconds: float) -> None:
        """One request was answered."""
        self._requests[route, code].inc()
        self._seconds[route].observe((seconds,))

    def appended(self, size: int, seconds: float) -> None:
        """One call of append put `size` events away."""
        self._append_batch_size.observe((size,))
        self._append_seconds.observe((seconds,))

    def troubled(self, kind: Kind) -> None:
        """Redis did not do what it was asked."""
        self._faults[kind].inc()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"redispatch_{name}", text, labels, registry=self.registry)

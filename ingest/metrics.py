"""What ingest counts; every label value exists from the start, and no sender can make one.

One `Metrics` per process, with a registry of its own that `/metrics` serves; what it shows is of all
processes that share a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct
from prometheus_client import CollectorRegistry

from common.counter import Counter, Gauge, Number
from common.histogram import Histogram
from common.http import OTHER
from common.shared import Row, Table
from common.trouble import Kind
from ingest.event import Source

CODES = (200, 201, 207, 400, 401, 404, 405, 408, 413, 415, 417, 429, 500, 503)
SECONDS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
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
    """Counters, with their series bound; `row` is this process's, where there are several."""

    def __init__(self, routes: Iterable[str] = (), row: Row | None = None) -> None:
        self.registry = CollectorRegistry()
        self._row = row or Table().row()
        names = (*routes, OTHER)
        codes = {str(code): code for code in CODES}
        requests = self._counter("ingest_requests", "requests answered", route=names, code=list(codes))
        self._requests = {(route, codes[code]): number for (route, code), number in requests.items()}
        seconds = "from the request's head to its answer"
        self._seconds = self._histogram("ingest_request_seconds", seconds, SECONDS, "route", names).of
        fields = Outcomes.__struct_fields__
        alerts = self._counter("alerts", "what became of each item", source=list(Source), outcome=fields)
        self.outcomes = {
            source: Outcomes(*(alerts[source, field].add for field in fields)) for source in Source
        }
        faults = self._counter("redis_errors", "commands that brought no result", kind=list(Kind))
        self._faults = {kind: faults[kind,] for kind in Kind}
        sizes = self._histogram("append_batch_size", "events in one call", SIZES)
        self._append_batch_size = sizes.of[""]
        self._append_seconds = self._histogram("append_seconds", "one call of append", SECONDS).of[""]
        unsafe = self._gauge("redis_unsafe", "1: may cost alerts", kind=("no_aof", "eviction"))
        self.redis_unsafe = {kind: number for (kind,), number in unsafe.items()}
        refused = "1: the configuration's file can't be used, and the one before is"
        self.reload_failed = self._gauge("config_reload_failed", refused)[()]
        self.workers = self._gauge("ingest_workers", "processes that run")[()]
        deaths = "processes that ended by themselves and were started again"
        self.worker_deaths = self._counter("ingest_worker_deaths", deaths)[()]
        self._beats = self._row.take(1)

    def begin(self) -> None:
        """At the start of a process, which may take a dead one's place: counts go on, states do not."""
        for state in (*self.redis_unsafe.values(), self.reload_failed):
            state.set(0)

    def beat(self) -> None:
        """The process makes progress; for its supervisor."""
        self._beats.own[0] += 1

    def beats(self) -> list[float]:
        """How often each process has said so."""
        return [own[0] for own in self._beats.all]

    def request(self, route: str, code: int, seconds: float) -> None:
        """One request was answered."""
        self._requests[route, code].add()
        self._seconds[route].observe((seconds,))

    def appended(self, size: int, seconds: float) -> None:
        """One call of append put `size` events away."""
        self._append_batch_size.observe((size,))
        self._append_seconds.observe((seconds,))

    def troubled(self, kind: Kind) -> None:
        """Redis did not do what it was asked."""
        self._faults[kind].add()

    def _counter(self, name: str, text: str, **labels: Sequence[str]) -> dict[tuple[str, ...], Number]:
        return Counter(f"redispatch_{name}", text, self.registry, labels, self._row.take).of

    def _gauge(self, name: str, text: str, **labels: Sequence[str]) -> dict[tuple[str, ...], Number]:
        return Gauge(f"redispatch_{name}", text, self.registry, labels, self._row.take).of

    def _histogram(
        self,
        name: str,
        text: str,
        bounds: Sequence[float],
        label: str | None = None,
        values: Iterable[str] = ("",),
    ) -> Histogram:
        return Histogram(f"redispatch_{name}", text, bounds, self.registry, label, values, self._row.take)

"""A histogram for one event loop: many values at once, without a lock for each.

The library's own takes a lock for every value, which costs more than the rest of a cheap delivery. This one
counts in plain numbers, which several processes may share (`shared.py`), and hands the library the finished
family when it is asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from common.shared import Cells, alone


class Series:
    """One label value's counts; `bounds` are the buckets' upper bounds without infinity."""

    def __init__(self, bounds: Sequence[float], cells: Cells) -> None:
        self._bounds = bounds
        self._cells = cells  # a count for each bound, one beyond them, the sum
        self._own = cells.own

    def observe(self, values: Iterable[float]) -> None:
        """Count values, in seconds."""
        bounds, numbers = self._bounds, self._own
        for value in values:
            numbers[bisect_left(bounds, value)] += 1
            numbers[-1] += value

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """As the exposition wants it: cumulative."""
        *counts, sum_value = self._cells.sums()
        total = 0.0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), total))
        family.add_metric(labels, buckets=buckets, sum_value=sum_value)


class Histogram(Collector):
    """A histogram whose label's values are all known beforehand, or without any label: `of[""]`."""

    def __init__(
        self,
        name: str,
        text: str,
        bounds: Sequence[float],
        registry: CollectorRegistry,
        label: str | None = None,
        values: Iterable[str] = ("",),
        take: Callable[[int], Cells] = alone,
    ) -> None:
        self._name, self._text = name, text
        self._labels = [label] if label else []
        self._bounds = bounds
        self._take = take
        self.of: dict[str, Series] = {}
        for value in values:
            self.add(value)
        registry.register(self)

    def add(self, value: str) -> None:
        """One more value of the label, if it is not there already."""
        if value not in self.of:
            self.of[value] = Series(self._bounds, self._take(len(self._bounds) + 2))

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at a scrape."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for value, series in self.of.items():
            series.add_to(family, [value] if self._labels else [])
        yield family

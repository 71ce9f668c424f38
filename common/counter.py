"""Counters and gauges for one event loop per process, without locks: what the library's own are, summed up.

Their numbers are cells that several processes may share (`shared.py`). Label values are all known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from common.shared import Cells, Numbers, alone

Labels = Mapping[str, Sequence[str]]  # the values of each
Take = Callable[[int], Cells]


class Number:
    """One series of this process."""

    __slots__ = ("_numbers", "_place")

    def __init__(self, numbers: Numbers, place: int) -> None:
        self._numbers = numbers
        self._place = place

    def add(self, amount: float = 1) -> None:
        """Count."""
        self._numbers[self._place] += amount

    def set(self, value: float) -> None:
        """For gauges."""
        self._numbers[self._place] = value


class _Family(Collector):
    """`of` has the series by their labels' values, `()` where there are no labels."""

    def __init__(
        self, name: str, text: str, registry: CollectorRegistry, labels: Labels, take: Take = alone
    ) -> None:
        self._name, self._text, self._labels = name, text, list(labels)
        series = list(product(*labels.values()))
        self._cells = take(len(series))
        self.of = {values: Number(self._cells.own, place) for place, values in enumerate(series)}
        registry.register(self)


class Counter(_Family):
    """Shown as the sum over all processes."""

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at a scrape."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, value in zip(self.of, self._cells.sums(), strict=True):
            family.add_metric(values, value)
        yield family


class Gauge(_Family):
    """Shown as the largest of all processes."""

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at a scrape."""
        family = GaugeMetricFamily(self._name, self._text, labels=self._labels)
        for values, column in zip(self.of, zip(*self._cells.all, strict=True), strict=True):
            family.add_metric(values, max(column))
        yield family

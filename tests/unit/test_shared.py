"""Numbers that processes share, and the counters and gauges made of them."""

from __future__ import annotations

import os

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from common.counter import Counter, Gauge
from common.histogram import Histogram
from common.shared import WIDTH, Table


def shown(registry: CollectorRegistry) -> list[str]:
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


def family(table: Table, row: int) -> tuple[Counter, Gauge, Histogram, CollectorRegistry]:
    """What each process makes, in the same order."""
    registry, own = CollectorRegistry(), table.row(row)
    counter = Counter("c", "text", registry, {"a": ("x", "y"), "b": ("z",)}, own.take)
    gauge = Gauge("g", "text", registry, {}, own.take)
    return counter, gauge, Histogram("h", "text", (1, 2), registry, take=own.take), registry


def test_every_row_shows_the_sum_and_gauges_the_largest() -> None:
    table = Table(3)
    ones = [family(table, row) for row in range(3)]
    for n, (counter, gauge, histogram, _) in enumerate(ones):
        counter.of["x", "z"].add(n)
        counter.of["y", "z"].add()
        gauge.of[()].set(n % 2)
        histogram.of[""].observe([n])
    texts = [shown(registry) for *_, registry in ones]
    assert texts[0] == texts[1] == texts[2]
    for line in ('c_total{a="x",b="z"} 3.0', 'c_total{a="y",b="z"} 3.0', "g 1.0"):
        assert line in texts[0]
    for line in ('h_bucket{le="1.0"} 2.0', 'h_bucket{le="2.0"} 3.0', "h_count 3.0", "h_sum 3.0"):
        assert line in texts[0]


def test_they_are_shown_as_the_librarys_own() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    Counter("c", "text", ours, {"a": ("x",)}).of["x",].add(2)
    Gauge("g", "text", ours, {}).of[()].set(1)
    prometheus_client.Counter("c", "text", ["a"], registry=theirs).labels("x").inc(2)
    prometheus_client.Gauge("g", "text", registry=theirs).set(1)
    assert shown(ours) == shown(theirs)


def test_what_a_dead_process_counted_stays_and_goes_on() -> None:
    table = Table(2)
    parent = family(table, 0)
    for _ in range(2):  # the second goes on where the first ended
        pid = os.fork()
        if not pid:
            family(table, 1)[0].of["x", "z"].add(5)
            os._exit(0)
        os.waitpid(pid, 0)
    assert 'c_total{a="x",b="z"} 10.0' in shown(parent[-1])


def test_a_row_has_an_end() -> None:
    row = Table().row()
    row.take(WIDTH)
    with pytest.raises(ValueError, match="no more than"):
        row.take(1)

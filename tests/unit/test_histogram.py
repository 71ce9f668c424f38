"""The histogram without locks shows what the library's own would show."""

from __future__ import annotations

import prometheus_client
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from common.histogram import Histogram

BOUNDS = (0.1, 1, 2.5)


def shown(registry: CollectorRegistry) -> list[str]:
    """The exposition, without the times at which series were made."""
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


@given(st.lists(st.sampled_from([0.0, 0.1, 0.10001, 1.0, 2.0, 2.5, 3.0, 1e9])))
def test_it_is_the_librarys_own(values: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    own = Histogram("h", "text", BOUNDS, ours, "to", ["a", "b"])
    other = prometheus_client.Histogram("h", "text", ["to"], buckets=BOUNDS, registry=theirs)
    other.labels("a"), other.labels("b")
    own.of["a"].observe(values)
    for value in values:
        other.labels("a").observe(value)
    assert shown(ours) == shown(theirs)


def test_without_a_label() -> None:
    registry = CollectorRegistry()
    Histogram("h", "text", BOUNDS, registry).of[""].observe([0.5, 5])
    assert "h_count 2.0" in shown(registry)

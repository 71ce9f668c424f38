"""The queue's gauges when destinations come into the configuration, and leave it."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry

from common.outcomes import Reason
from common.settings import Queue
from common.snapshot import Ledger, Snapshot
from dispatcher.measure import GATES, MOST_REMOVED, Queues
from tests.support.settings import build


def seen(name: str, **more: Any) -> Snapshot:
    """A destination with nothing in it, but for what is told."""
    nothing = {"now": 0, "waiting": 0, "retrying": 0, "dead_letters": 0, "in_flight": 0, "consumers": 0}
    empty: dict[str, Any] = {**nothing, "groups": 1, "oldest_at": None, "next_due": None, "gate": {}}
    return Snapshot(destination=name, **{**empty, "ledger": Ledger(), **more})


def series(registry: CollectorRegistry, name: str) -> dict[str, float]:
    """What is shown of a destination, by metric; reasons of the gate added up."""
    shown: dict[str, float] = {}
    for family in registry.collect():
        for sample in family.samples:
            if sample.labels["destination"] == name:
                short = sample.name.removeprefix("redispatch_")
                shown[short] = shown.get(short, 0) + sample.value
    return shown


def test_what_left_is_shown_while_something_is_left() -> None:
    registry = CollectorRegistry()
    queues = Queues(registry)
    queues.configure(build(destinations=["kept", "gone"], queue=Queue(max_depth=7, max_dead=9)))
    assert series(registry, "gone") == {
        "queue_limit": 7,
        "dead_letters_limit": 9,
        "gate_closed": 0,
        "destination_removed": 0,
    }
    queues.configure(build(destinations=["kept"]))
    assert queues.left([]) == ["gone"]
    queues.show(seen("gone", waiting=3, ledger=Ledger(accepted=5, lost=2), gate={"state": GATES[0]}))
    queues.show(seen("kept"))
    shown = series(registry, "gone")
    assert (shown["destination_removed"], shown["queue_depth"], shown["gate_closed"]) == (1, 3, 1)
    assert shown["lost_entries_total"] == 2
    assert series(registry, "kept")["destination_removed"] == 0
    queues.show(seen("gone"))
    assert series(registry, "gone") == {}
    assert queues.left([]) == []
    assert series(registry, "kept")["queue_depth"] == 0


def test_what_died_is_shown_by_reason() -> None:
    registry = CollectorRegistry()
    queues = Queues(registry)
    queues.configure(build(destinations=["one"]))
    assert "dead_total" not in series(registry, "one")  # a 0 that was not looked up
    queues.show(seen("one", ledger=Ledger(accepted=9, died=5), died={"queue_full": 3, "removed": 2}))
    told = {
        sample.labels["reason"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "redispatch_dead_total"
    }
    nothing: dict[str, float] = dict.fromkeys(Reason, 0)
    assert told == nothing | {"queue_full": 3, "removed": 2}


def test_what_comes_back_is_not_removed() -> None:
    registry = CollectorRegistry()
    queues = Queues(registry)
    queues.configure(build(destinations=["one"]))
    assert queues.left(["one", "before"]) == ["before"]
    queues.show(seen("before", dead_letters=1, ledger=Ledger(accepted=1, died=1)))
    assert series(registry, "before")["destination_removed"] == 1
    queues.configure(build(destinations=["one", "before"]))
    assert series(registry, "before")["destination_removed"] == 0
    assert queues.left(["one", "before"]) == []


def test_not_too_many_are_looked_at() -> None:
    queues = Queues(CollectorRegistry())
    queues.configure(build(destinations=["one"]))
    assert len(queues.left([f"d{n}" for n in range(2 * MOST_REMOVED)])) == MOST_REMOVED

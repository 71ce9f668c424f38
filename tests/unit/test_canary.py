"""Canaries: what is made of the settings, where they end, and what is shown of them."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry

from common import canary, keys
from common.alert import Alert
from common.outcomes import Delivered, Later, Outcome, OutcomeKind
from common.settings import Canary, Settings
from common.units import Duration
from dispatcher.canary import Figures, Sink
from dispatcher.destinations.base import Delivery
from dispatcher.entry import Entry
from dispatcher.settle import Settled
from dispatcher.settling import Attempt, Settling
from ingest.route import Router
from tests.support.settings import build

DELIVERY = Delivery(
    entry_id="1-1",
    deliveries=1,
    key="canary:1",
    alert=Alert(incident=canary.INCIDENT, host="h", name="n", timestamp=1),
    attempt=1,
    first_at=1_000,
)
ON = Canary(every=Duration(60))


def on(*names: str) -> Settings:
    """Settings with canaries of these destinations."""
    return canary.canaries(build(destinations=names, canary=ON))


def test_each_destination_has_one_in_its_slot() -> None:
    made = on("pager", "chat")
    names = [each.name for each in made.destinations]
    assert list(map(canary.beside, names)) == ["pager", "chat"]
    assert all(map(canary.is_one, names))
    assert Router(made).destinations(DELIVERY.alert) == tuple(names)
    at = keys.Destination("redispatch", names[0])
    assert at.stream == "{redispatch:pager}:canary:stream"
    assert at.record("k") == "{redispatch:pager}:canary:record:k"


def test_without_a_setting_there_is_none() -> None:
    made = canary.canaries(build(destinations=["pager"]))
    assert Router(made).destinations(DELIVERY.alert) == ()


@dataclass
class Lane:
    """What a sink sees of one."""

    took_at: float
    halted: bool = False


@pytest.mark.parametrize(
    ("lane", "kind"),
    [
        (Lane(took_at=time.monotonic() + 1e6), OutcomeKind.DELIVERED),
        (Lane(took_at=float("-inf")), OutcomeKind.TIMEOUT),
        (Lane(took_at=time.monotonic() + 1e6, halted=True), OutcomeKind.FAILED),
        (None, OutcomeKind.FAILED),
    ],
    ids=["takes", "stands still", "halted", "gone"],
)
async def test_it_arrives_when_its_destinations_lane_takes(lane: Lane | None, kind: OutcomeKind) -> None:
    sink = Sink(lambda: lane, timeout=0.001)  # type: ignore[arg-type,return-value]  # all that it looks at
    assert (await sink.deliver(DELIVERY)).kind is kind


async def test_it_waits_for_a_lane_that_takes_later() -> None:
    lanes = iter([Lane(float("-inf")), Lane(float("-inf")), Lane(time.monotonic() + 1e6)])
    sink = Sink(lambda: next(lanes), timeout=60)  # type: ignore[arg-type,return-value]  # the same
    assert (await sink.deliver(DELIVERY)).kind is OutcomeKind.DELIVERED
    assert next(lanes, None) is None


def shown(registry: CollectorRegistry) -> dict[str, float]:
    """By name and destination; without buckets."""
    return {
        f"{sample.name.removeprefix('redispatch_canary_')} {sample.labels['destination']}": sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


def settling(settlement: Delivered | Later, kind: OutcomeKind | None) -> Settling:
    attempt = None if kind is None else Attempt(kind, 0.1)
    return Settling(Entry("1-1", {}), DELIVERY, settlement, claimed=True, attempt=attempt)


def test_what_arrives_is_all_that_is_shown() -> None:
    registry = CollectorRegistry()
    figures = Figures(registry)
    figures.configure(["pager"])
    figures.add("pager/canary")
    last = "last_success_timestamp_seconds pager"
    nothing = {"end_to_end_seconds_count pager": 0, "end_to_end_seconds_sum pager": 0, last: 0}
    assert shown(registry) == nothing
    arrived = settling(Delivered(), OutcomeKind.DELIVERED)
    late = settling(Later(1, spends=True), OutcomeKind.TIMEOUT)
    stale = [settling(Delivered(), None), settling(Delivered(), OutcomeKind.TIMEOUT)]
    lane = figures.of["pager/canary"]
    lane.settled([arrived, late, *stale], [Settled.FENCED, *[Settled.DONE] * 3], now=3_000)
    assert shown(registry) == nothing
    lane.settled([arrived], [Settled.DONE], now=3_000)
    told = shown(registry)
    assert told[last] >= time.time() - 60
    assert told["end_to_end_seconds_sum pager"] == 2
    figures.configure([])
    assert last not in shown(registry)
    lane.settled([arrived], [Settled.DONE], now=3_000)  # its lane may still be ending
    assert last not in shown(registry)


def test_a_stale_one_ends_and_is_no_dead_letter() -> None:
    sink = Sink(lambda: None, 1)
    assert sink.instead(DELIVERY, Outcome(OutcomeKind.TIMEOUT)).kind is OutcomeKind.DELIVERED

"""Canaries go each destination's way and are seen to arrive, once per period; nothing else notices them."""

from __future__ import annotations

import asyncio

from common import keys
from tests.support.fleet import NAME, NAMESPACE, Fleet, Fleets, Running, eventually
from tests.support.servers import Pool

BESIDE = keys.Destination(NAMESPACE, f"{NAME}/canary")
LAST = "redispatch_canary_last_success_timestamp_seconds"
BUSINESS = (
    "redispatch_deliveries_total",
    "redispatch_attempts_total",
    "redispatch_end_to_end_seconds_count",
    "redispatch_queue_depth",
    "redispatch_dead_letters",
)


def accepted(fleet: Fleet) -> int:
    """Canaries that came in so far."""
    return int(fleet.server.cli("HGET", BESIDE.ledger, "accepted") or 0)


def seconds(fleet: Fleet) -> int:
    """The server's time."""
    return int(fleet.server.cli("TIME")[0])


async def unnoticed(fleet: Fleet, ingests: list[Running], dispatcher: Running) -> None:
    """Nothing is counted, kept, shown or sent as if it were an alert."""
    for name in BUSINESS:
        assert await dispatcher.metric(name) == 0, name
    for ingest in ingests:
        assert await ingest.metric("redispatch_alerts_total") == 0
        assert await ingest.metric("redispatch_append_batch_size_count") == 0
    seen = await fleet.snapshot()
    assert (seen.depth, seen.ledger.accepted, seen.unaccounted) == (0, 0, 0)
    assert fleet.server.cli("EXISTS", keys.destinations(NAMESPACE)) == 0
    assert fleet.receiver.requests == []


async def test_canaries_arrive_and_nobody_else_notices(fleets: Fleets, pool: Pool) -> None:
    server = pool.get("cluster")  # whose scripts may touch one slot each
    fleet = await fleets(server, canary={"every": "1s"})
    first, second, dispatcher = await asyncio.gather(fleet.ingest(), fleet.ingest(), fleet.dispatcher())
    began = seconds(fleet)
    before = accepted(fleet)
    arrived = "redispatch_canary_end_to_end_seconds_count"
    await dispatcher.wait_metric(arrived, 3, destination=NAME)
    came = accepted(fleet) - before
    # One a second, whichever ingest it was, that second included; one may have been on its way before.
    assert came <= seconds(fleet) - began + 2
    assert await dispatcher.metric(LAST, destination=NAME) >= began - 60
    await unnoticed(fleet, [first, second], dispatcher)
    await first.process.stop()  # the other goes on
    await dispatcher.wait_metric(arrived, await dispatcher.metric(arrived) + 2)
    for running in (second, dispatcher):
        assert await running.process.stop() == 0, running.process.text
    assert not dispatcher.lines("drain_incomplete")
    await eventually(
        lambda: server.cli("XINFO", "CONSUMERS", BESIDE.stream, keys.GROUP) == [], "all have left"
    )

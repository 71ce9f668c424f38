"""What somebody wrote into our keys by hand ends no process: it counts as 0, and the ledger tells."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.asyncio import Redis

from common import keys
from common.keys import Destination
from common.snapshot import destinations, snapshot
from common.wire import Wire
from dispatcher.measure import Queues, measure
from dispatcher.metrics import Metrics
from dispatcher.take import make_group, take
from ops.console.watch import Watch
from tests.support.books import NAMESPACE
from tests.support.fleet import eventually
from tests.support.servers import Server
from tests.support.settings import build

AT = Destination(NAMESPACE, "pager")
GARBLED: dict[Any, Any] = {"accepted": b"5", "delivered": b"many", "lost": b"9" * 30, "died_object": b"\xff"}


async def garble(redis: Redis) -> None:
    await redis.hset(AT.ledger, mapping=GARBLED)
    await redis.sadd(keys.destinations(NAMESPACE), "pager", b"\xff")


async def test_counters_that_are_none(redis: Redis) -> None:
    await garble(redis)
    seen = await snapshot(redis, NAMESPACE, "pager")
    assert (seen.ledger.accepted, seen.ledger.delivered, seen.ledger.lost) == (5, 0, 0)
    assert seen.died == {"object": 0}
    assert seen.unaccounted == 5
    assert await destinations(redis, NAMESPACE) == ["pager", "\ufffd"]


async def test_gauges_and_the_console_go_on(server: Server, redis: Redis) -> None:
    await garble(redis)
    settings, metrics = build(server.url, ["pager"]), Metrics()
    queues = Queues(metrics.registry)
    queues.configure(settings)

    async def measured() -> bool:
        told = metrics.registry.get_sample_value
        return told("redispatch_unaccounted_deliveries", {"destination": "pager"}) == 5

    measuring = asyncio.create_task(measure(redis, NAMESPACE, queues, metrics))
    try:
        await eventually(measured, "the gauge")
        assert not measuring.done()
    finally:
        measuring.cancel()
    watch = Watch(redis, settings, lambda kind: None)
    await watch.look()
    assert watch.fault is None
    assert watch.board["pager/ledger_delivered"] == "0"
    assert "5 unaccounted" in watch.board["all/ledger"]


async def test_a_gate_that_is_none(redis: Redis) -> None:
    await make_group(redis, AT)
    await redis.xadd(AT.stream, {"key": "k"})
    wire = Wire(redis)
    for state in (b"\xff", b"paused", b"breaker"):
        await redis.hset(AT.gate, mapping={"state": state, "until": "soon", "opened_at": "x", "lease": "?"})
        taken = await take(wire, AT, "a", 1)
        assert (taken.gate, taken.until) == (state.decode("utf-8", "replace"), 0)
    await wire.close()

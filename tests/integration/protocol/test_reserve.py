"""The fleet's rate for requests that carry several deliveries."""

from __future__ import annotations

from common.scripts import Script
from tests.integration.protocol.stand import Stand

_reserve = Script("dispatcher", "reserve")


async def reserve(stand: Stand, rate: float | None) -> tuple[str, int]:
    told = "" if rate is None else repr(rate)
    gate, wait = await _reserve(stand.redis, [stand.at.gate, stand.at.rate], [told])
    return gate.decode(), wait


async def test_each_request_waits_for_those_before_it(stand: Stand) -> None:
    waits = [(await reserve(stand, 0.1))[1] for _ in range(4)]
    assert waits[0] == 0
    for place, wait in enumerate(waits[1:], 1):
        assert 10_000 * place - 5_000 < wait <= 10_000 * place


async def test_a_second_of_it_may_go_at_once(stand: Stand) -> None:
    waits = [(await reserve(stand, 1000.0))[1] for _ in range(500)]
    assert set(waits) == {0}


async def test_behind_a_closed_gate_nothing_is_reserved(stand: Stand) -> None:
    await stand.redis.hset(stand.at.gate, "state", "paused")
    assert await reserve(stand, 0.1) == ("paused", 0)
    assert await stand.redis.exists(stand.at.rate) == 0


async def test_without_a_rate_it_looks_at_the_gate(stand: Stand) -> None:
    assert await reserve(stand, None) == ("", 0)
    await stand.redis.hset(stand.at.gate, "state", "paused")
    assert await reserve(stand, None) == ("paused", 0)
    assert await stand.redis.exists(stand.at.rate) == 0

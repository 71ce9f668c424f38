"""The rates of senders on every kind of server: a bucket per token, one call for all that is under way."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis

from common import connect, keys
from common.settings import Redis as RedisSection
from common.trouble import Kind
from common.units import Duration
from ingest.event import Unavailable
from ingest.senders import ANONYMOUS, Sender
from ingest.spend import MOST, Spender
from tests.support.servers import Server
from tests.support.settings import build

SETTINGS = build()
SLOW = Sender("slow", 10 / 3600)  # so slow that nothing comes back while a test runs
QUICK = Sender("quick", 100 / 3600)
KEY = keys.allowance("redispatch", "slow")


@pytest.fixture
def spender(redis: Redis) -> Spender:
    return Spender(redis, SETTINGS)


async def later(redis: Redis, seconds: float) -> None:
    """As if the bucket had last been looked at so much earlier."""
    at = int((await redis.hget(KEY, "at")) or 0)
    await redis.hset(KEY, "at", str(at - round(seconds * 1000)))


async def calls(redis: Redis) -> int:
    """How often a script was called on this server so far."""
    return int((await redis.info("commandstats")).get("cmdstat_evalsha", {"calls": 0})["calls"])


async def test_one_at_a_time_and_then_as_they_come(redis: Redis, spender: Spender) -> None:
    assert await spender.spend(SLOW, 1) == 0
    wait = await spender.spend(SLOW, 1)
    assert 350 < wait <= 360
    assert await spender.spend(SLOW, 1) <= wait  # what is refused costs nothing
    await later(redis, 355)
    assert await spender.spend(SLOW, 1) > 0
    await later(redis, 10)
    assert await spender.spend(SLOW, 1) == 0


async def test_a_second_is_worth_its_rate_and_no_longer_pause_more(redis: Redis, spender: Spender) -> None:
    sender = Sender("slow", 0.5 * 5)
    assert await spender.spend(sender, 2) == 0
    await later(redis, 3600)
    told = await asyncio.gather(*(spender.spend(sender, 1) for _ in range(3)))  # at one moment
    assert told[:2] == [0, 0]
    assert 0 < told[2] <= 0.4


async def test_a_batch_larger_than_the_bucket_goes_when_it_is_full_and_leaves_a_debt(
    redis: Redis, spender: Spender
) -> None:
    assert await spender.spend(SLOW, 10) == 0
    assert 3500 < await spender.spend(SLOW, 1) <= 3600
    await later(redis, 3500)
    assert await spender.spend(SLOW, 500) > 0
    await later(redis, 100)
    assert await spender.spend(SLOW, 500) == 0


async def test_each_has_its_own_and_those_without_a_rate_cost_nothing(redis: Redis, spender: Spender) -> None:
    assert await spender.spend(SLOW, 1) == await spender.spend(QUICK, 1) == 0
    assert await spender.spend(SLOW, 1) > await spender.spend(QUICK, 1) > 0
    before = await calls(redis)
    assert await spender.spend(ANONYMOUS, 1000) == 0
    assert await calls(redis) == before


async def test_requests_of_one_moment_share_a_call_and_are_told_one_by_one(
    redis: Redis, spender: Spender
) -> None:
    sender = Sender("many", 5.0)
    before = await calls(redis)
    told = await asyncio.gather(*(spender.spend(sender, 2) for _ in range(4)), spender.spend(SLOW, 1))
    assert [wait > 0 for wait in told] == [False, False, True, True, False]
    await asyncio.gather(*(spender.spend(QUICK, 1) for _ in range(MOST)))
    assert await calls(redis) - before < 10


async def test_replicas_share_a_rate(redis: Redis, spender: Spender) -> None:
    other = Spender(redis, SETTINGS)
    assert await spender.spend(SLOW, 1) == 0
    assert await other.spend(SLOW, 1) > 0


async def test_nothing_is_kept_of_a_bucket_that_is_full_again(redis: Redis, spender: Spender) -> None:
    await spender.spend(SLOW, 1)
    assert 355_000 < await redis.pttl(KEY) <= 361_000
    await spender.spend(Sender("fast", 1000.0), 1)
    left = await redis.pttl(keys.allowance("redispatch", "fast"))
    assert 0 < left <= 1001 or left == -2  # and it has gone already


async def test_a_clock_that_goes_back_gives_nothing_and_takes_nothing(redis: Redis, spender: Spender) -> None:
    await spender.spend(SLOW, 1)
    await later(redis, -3600)
    assert 350 < await spender.spend(SLOW, 1) <= 360
    assert 350 < await spender.spend(SLOW, 1) <= 360


async def test_a_server_that_is_away_is_unavailable() -> None:
    troubles: list[Kind] = []
    section = RedisSection(url="redis://127.0.0.1:1/0", timeout=Duration(2))
    away = Spender(connect.client(section), SETTINGS, troubled=troubles.append)
    with pytest.raises(Unavailable, match="count"):
        await away.spend(SLOW, 1)
    assert troubles == [Kind.CONNECTION]
    assert await away.spend(ANONYMOUS, 1) == 0


async def test_at_maxmemory_it_is_unavailable(server: Server, redis: Redis, spender: Spender) -> None:
    await redis.config_set("maxmemory", "1")
    try:
        with pytest.raises(Unavailable, match="oom"):
            await spender.spend(SLOW, 1)
    finally:
        await redis.config_set("maxmemory", "0")
    assert await spender.spend(SLOW, 1) == 0

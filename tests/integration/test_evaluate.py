"""The evaluate script on every kind of server: readings kept, episodes by the readings' own times."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from redis.asyncio import Redis

from common import connect, keys
from common.alert import Status
from common.settings import Readings, Rule
from common.settings import Redis as RedisSection
from common.trouble import Kind
from common.units import Duration
from ingest.evaluate import MOST, Evaluator
from ingest.event import Reading, Unavailable
from tests.support.servers import Server
from tests.support.settings import build

DISK = Rule(name="disk-full", metric="disk", when=">= 100", clear="< 90", by=["mount"])
HOT = Rule(name="hot", metric="temperature", when="> 80")
FIRES, BETWEEN, CLEARS = 100, 95, 80
SETTINGS = build(rules=[DISK, HOT])
STATE = keys.rule("redispatch", "h:disk-full")

Told = tuple[str, int | None, int | None]


def reading(value: float, at: int, **fields: object) -> Reading:
    return Reading("h", "disk", value, at, **fields)  # type: ignore[arg-type]  # labels only


async def told(evaluator: Evaluator, value: float, at: int) -> Told | None:
    """What a reading gives: status, start and end; None for no alert."""
    [events] = await evaluator.submit([reading(value, at)])
    if not events:
        return None
    [alert] = [event.alert for event in events]
    return alert.status.value, alert.starts_at, alert.ends_at


@pytest.fixture
def evaluator(redis: Redis) -> Evaluator:
    return Evaluator(redis, SETTINGS)


async def test_an_episode_from_its_first_reading_to_its_resolution(evaluator: Evaluator) -> None:
    assert await told(evaluator, CLEARS, 1) is None
    assert await told(evaluator, BETWEEN, 2) is None
    assert await told(evaluator, FIRES, 3) == ("firing", 3, None)
    assert await told(evaluator, FIRES, 4) == ("firing", 3, None)
    assert await told(evaluator, BETWEEN, 5) is None
    assert await told(evaluator, CLEARS, 6) == ("resolved", 3, 6)
    assert await told(evaluator, CLEARS, 7) == ("resolved", 3, 6)
    assert await told(evaluator, FIRES, 8) == ("firing", 8, None)


async def test_a_resolution_is_told_again_for_a_quarter_of_an_hour(
    evaluator: Evaluator, redis: Redis
) -> None:
    """Whoever dies before its alert is appended loses nothing, though the sender goes on with new ones."""
    await told(evaluator, FIRES, 3)
    assert await told(evaluator, FIRES, 4) == ("firing", 3, None)
    await told(evaluator, CLEARS, 6)
    state = await redis.hgetall(STATE)
    for at in (7, 900_006):
        assert await told(evaluator, CLEARS, at) == ("resolved", 3, 6)
    for value, at in ((CLEARS, 900_007), (CLEARS, 5), (BETWEEN, 8)):
        assert await told(evaluator, value, at) is None
    assert await redis.hgetall(STATE) == state


async def test_a_repeated_reading_gives_its_alert_again_and_changes_nothing(
    evaluator: Evaluator, redis: Redis
) -> None:
    sequence = [(FIRES, 3), (FIRES, 4), (CLEARS, 6), (FIRES, 8), (CLEARS, 9), (FIRES, 12)]
    first = [await told(evaluator, value, at) for value, at in sequence]
    state = await redis.hgetall(STATE)
    for value, at in [*reversed(sequence), *sequence]:
        assert await told(evaluator, value, at) == first[sequence.index((value, at))]
    assert await redis.hgetall(STATE) == state


async def test_a_late_reading_belongs_to_what_came_after_it(evaluator: Evaluator, redis: Redis) -> None:
    await told(evaluator, FIRES, 10)
    await told(evaluator, FIRES, 20)
    state = await redis.hgetall(STATE)
    assert await told(evaluator, FIRES, 5) == ("firing", 10, None)
    assert await told(evaluator, CLEARS, 15) is None
    assert await told(evaluator, CLEARS, 5) is None
    assert await told(evaluator, CLEARS, 20) is None
    assert await redis.hgetall(STATE) == state
    assert await told(evaluator, CLEARS, 21) == ("resolved", 10, 21)
    assert await told(evaluator, FIRES, 20) == ("firing", 10, None)


async def test_replicas_agree(redis: Redis) -> None:
    one, other = Evaluator(redis, SETTINGS), Evaluator(redis, SETTINGS)
    starts = await asyncio.gather(*(told(one if at % 2 else other, FIRES, 100 + at) for at in range(50)))
    assert len({start for _, start, _ in filter(None, starts)}) == 1
    assert await told(other, CLEARS, 1000) == await told(one, CLEARS, 1000)


async def test_incidents_are_told_apart_by_the_labels_that_count(evaluator: Evaluator) -> None:
    var, home = {"mount": "/var", "pid": "1"}, {"mount": "/home", "pid": "1"}
    await evaluator.submit([reading(FIRES, 1, labels=var), reading(FIRES, 2, labels=home)])
    [[event]] = await evaluator.submit([reading(CLEARS, 3, labels={**var, "pid": "2"})])
    assert (event.alert.status, event.alert.starts_at) == (Status.RESOLVED, 1)
    [[event]] = await evaluator.submit([reading(FIRES, 4, labels=home)])
    assert event.alert.starts_at == 2


async def test_a_rule_without_clear_keeps_nothing(evaluator: Evaluator, redis: Redis) -> None:
    [[event]] = await evaluator.submit([Reading("h", "temperature", 81, 7)])
    assert (event.alert.name, event.alert.timestamp, event.alert.starts_at) == ("hot", 7, None)
    assert [key async for key in redis.scan_iter("*rule*")] == []


async def test_every_reading_is_kept_readable(evaluator: Evaluator, redis: Redis) -> None:
    await evaluator.submit([Reading("h", "cpu", 0.1, 7, {"a": "ö"}), Reading("h", "cpu", 10**15 + 1, 8)])
    entries: list[Any] = await redis.execute_command("XRANGE", keys.readings("redispatch"), "-", "+")
    assert [list(dict(fields).items()) for _, fields in entries] == [
        [
            (b"host", b"h"),
            (b"metric", b"cpu"),
            (b"value", value),
            (b"timestamp", at),
            (b"labels", labels),
        ]
        for value, at, labels in (
            (b"0.1", b"7", '{"a":"ö"}'.encode()),
            (b"1000000000000001", b"8", b"{}"),
        )
    ]


async def test_the_stream_is_capped_and_the_state_bounded(redis: Redis) -> None:
    evaluator = Evaluator(redis, build(rules=[DISK], readings=Readings(keep=100)))
    values = [reading(FIRES if at % 2 else CLEARS, at) for at in range(1, 1001)]
    results = await evaluator.submit(values)
    assert all(len(events) == 1 for events in results)
    assert await redis.xlen(keys.readings("redispatch")) < 300
    assert await redis.hlen(STATE) == 16
    assert 0 < await redis.pttl(STATE) <= SETTINGS.dedupe.remember.ms


async def test_what_arrives_during_a_call_goes_with_the_next_one(redis: Redis) -> None:
    evaluator = Evaluator(redis, SETTINGS)
    await evaluator.submit([reading(CLEARS, 1)])  # the server knows the script now
    calls = (await redis.info("commandstats"))["cmdstat_evalsha"]["calls"]
    await asyncio.gather(*(evaluator.submit([reading(FIRES, 2 + at)]) for at in range(MOST)))
    now = (await redis.info("commandstats"))["cmdstat_evalsha"]["calls"]
    assert now - calls <= 2


async def test_a_large_request_is_cut_into_calls_and_keeps_its_order(evaluator: Evaluator) -> None:
    results = await evaluator.submit([reading(FIRES, at) for at in range(1, 2 * MOST + 10)])
    assert len(results) == 2 * MOST + 9
    for before, after in pairwise(results):
        assert before[0].alert.timestamp + 1 == after[0].alert.timestamp


async def test_a_full_server_takes_nothing_and_says_so(server: Server, redis: Redis) -> None:
    kinds: list[Kind] = []
    evaluator = Evaluator(redis, SETTINGS, troubled=kinds.append)
    server.cli("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(Unavailable) as refused:
        await evaluator.submit([reading(FIRES, 1)])
    assert refused.value.retry_after > 0
    assert kinds == [Kind.OOM]
    server.cli("CONFIG", "SET", "maxmemory", "0")
    assert await redis.dbsize() == 0


async def test_a_frozen_server_costs_one_timeout_and_is_forgotten(valkey: Server) -> None:
    timeouts: list[Kind] = []
    client = connect.client(RedisSection(url=valkey.url, timeout=Duration(1)))
    evaluator = Evaluator(client, SETTINGS, troubled=timeouts.append)
    valkey.freeze()
    waiting = [evaluator.submit([reading(FIRES, at)]) for at in range(2, 2 + 5 * MOST)]
    results = await asyncio.gather(*waiting, return_exceptions=True)
    valkey.thaw()
    assert {type(result) for result in results} == {Unavailable}
    assert timeouts == [Kind.TIMEOUT]
    assert await told(evaluator, FIRES, 2) == ("firing", 2, None)
    await client.aclose()

"""From a reading to a queued alert: evaluate, observe and append together, on every kind of server."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis

from common.settings import Rule
from ingest.append import Appender
from ingest.evaluate import Evaluator
from ingest.event import Reading, Stored
from ingest.route import Router
from tests.support.servers import Server
from tests.support.settings import build

SETTINGS = build(
    rules=[
        Rule(name="disk-full", metric="disk", when=">= 100", clear="< 90", summary="{host} at {value}%"),
        Rule(name="hot", metric="temperature", when="> 80", severity="warning"),
    ]
)
START = 1_772_439_277_000


class Chain:
    """What ingest does with a reading."""

    def __init__(self, redis: Redis, cluster: bool) -> None:
        self._evaluator = Evaluator(redis, SETTINGS)
        self._appender = Appender(redis, SETTINGS, Router(SETTINGS), cluster=cluster)

    async def post(self, metric: str, value: float, at: int) -> list[Stored]:
        [events] = await self._evaluator.submit([Reading("h", metric, value, at)])
        return await self._appender.submit(events)


@pytest.fixture
def chain(redis: Redis, server: Server) -> Chain:
    return Chain(redis, server.kind == "cluster")


async def test_an_episode_is_one_alert_and_one_resolution(chain: Chain) -> None:
    readings = [(100, 0), (104.5, 30_000), (95, 60_000), (80, 90_000), (80, 120_000)]
    for _ in range(2):
        stored = [await chain.post("disk", value, START + after) for value, after in readings]
        assert [[one.key for one in of_one] for of_one in stored] == [
            [f"h:disk-full:{START}"],
            [f"h:disk-full:{START}"],
            [],
            [f"h:disk-full:{START}:resolved"],
            [f"h:disk-full:{START}:resolved"],
        ]
        assert not any(one.conflict for of_one in stored for one in of_one)
    assert {one.status for of_one in stored for one in of_one} == {"duplicate"}


async def test_a_second_episode_is_another_alert(chain: Chain) -> None:
    for value, after in ((100, 0), (80, 1000)):
        await chain.post("disk", value, START + after)
    [again] = await chain.post("disk", 100, START + 2000)
    assert (again.key, again.status) == (f"h:disk-full:{START + 2000}", "queued")
    [late] = await chain.post("disk", 100, START)
    assert (late.key, late.status) == (f"h:disk-full:{START}", "duplicate")


async def test_a_rule_without_clear_is_one_alert_per_window(chain: Chain) -> None:
    window = START // 60_000
    keys = [(await chain.post("temperature", 90, START + after))[0] for after in (0, 1000, 60_000)]
    assert [(one.key, one.status) for one in keys] == [
        (f"h:hot:{window}:warning", "queued"),
        (f"h:hot:{window}:warning", "duplicate"),
        (f"h:hot:{window + 1}:warning", "queued"),
    ]

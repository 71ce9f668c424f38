"""What a destination makes of an alert is appended for those after it, before the original is settled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from common import keys
from common.alert import Status, decode
from common.outcomes import Dead, Delivered, Later, OutcomeKind, Reason
from common.policy import retry_policy
from common.settings import Destination, Queue, Settings
from common.settings import Redis as RedisSection
from common.snapshot import snapshot
from common.units import Duration
from dispatcher.deliver import Deliverer
from dispatcher.entry import Entry
from dispatcher.metrics import Metrics
from dispatcher.quarantine import Quarantine
from dispatcher.replica import Clock, Pulse, Replica
from dispatcher.settling import Settling
from dispatcher.trouble import Trouble
from tests.support.deliveries import alert, delivery
from tests.support.fleet import eventually
from tests.support.model import SAID, Model, refuses, says, summary
from tests.support.servers import Server

NAMESPACE = "redispatch"
DEADLINE = 30.0


class Bench:
    """The deliverer of a summary on a real server; what it settles is in `settled`."""

    def __init__(self, redis: Redis, model: Model, tasks: asyncio.TaskGroup, **queue: int) -> None:
        self.redis: Any = redis
        self.destination = summary(model.base, then=["chat", "log"])
        self.settings = Settings(
            redis=RedisSection(namespace=NAMESPACE),
            queue=Queue(**queue),
            destinations=[self.destination, *(Destination(name=n, type="discard") for n in ("chat", "log"))],
        )
        self.settled: asyncio.Queue[Settling] = asyncio.Queue()
        self.metrics = Metrics()
        replica = Replica(
            redis=redis,
            bell=redis,
            consumer="me",
            settings=self.settings,
            metrics=self.metrics,
            quarantine=Quarantine(),
            clock=Clock(),
            pulse=Pulse(60),
            stopping=asyncio.Event(),
            tasks=tasks,
        )
        at = keys.Destination(NAMESPACE, self.destination.name)
        trouble = Trouble(replica, self.destination.name, at)
        policy = retry_policy(self.destination)
        self.deliverer = Deliverer(replica, self.destination, policy, self.settled.put_nowait, trouble)
        replica.clock.set(delivery().first_at)

    async def attempt(self, attempt: int = 1, **of: Any) -> Settling:
        """One attempt, until its settlement is posted."""
        self.deliverer.deliver(Entry("1-1", {}), delivery("k", attempt, **of))
        return await self.next()

    async def next(self) -> Settling:
        """What is posted next."""
        async with asyncio.timeout(DEADLINE):
            return await self.settled.get()

    async def entries(self, name: str) -> list[dict[str, str]]:
        """The annotations of what waits there, each with its key."""
        found = await self.redis.xrange(keys.stream(NAMESPACE, name))
        alerts = [decode(fields[b"alert"]) for _, fields in found]
        assert [fields[b"key"].decode() for _, fields in found] == [each.key for each in alerts]
        return [{**each.annotations, "key": each.key} for each in alerts]

    async def balanced(self) -> None:
        """The ledgers of those that come after are exact."""
        for name in ("chat", "log"):
            assert (await snapshot(self.redis, NAMESPACE, name)).unaccounted == 0


New = Callable[..., Bench]
BY_MODEL = {"ai_summary": SAID, "ai_summary_by": "small", "key": "k:summarizer"}
PLAIN = {"ai_summary": "FIRING: disk on db1", "ai_summary_by": "plain", "key": "k:summarizer"}


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    """A model that says SAID until it is told otherwise."""
    async with Model() as started:
        yield started


@pytest.fixture
async def bench(model: Model) -> AsyncIterator[New]:
    """`bench(client)`: a deliverer, closed when the test is over."""
    made: list[Bench] = []
    async with asyncio.TaskGroup() as tasks:

        def build(redis: Redis, **queue: int) -> Bench:
            made.append(Bench(redis, model, tasks, **queue))
            return made[-1]

        yield build
        for one in made:
            await one.deliverer.close()


async def test_it_is_there_before_the_original_is_settled(bench: New, redis: Redis) -> None:
    one = bench(redis)
    settling = await one.attempt()
    assert settling.settlement == Delivered(200)
    for name in ("chat", "log"):
        assert await one.entries(name) == [BY_MODEL]
    assert await one.redis.smembers(keys.destinations(NAMESPACE)) == {b"chat", b"log"}
    await one.balanced()


async def test_a_second_copy_adds_nothing(bench: New, redis: Redis, model: Model) -> None:
    one = bench(redis)
    await one.attempt()
    model.default = says("Something else.")
    assert (await one.attempt()).settlement == Delivered(200)
    model.default = refuses(400)
    assert (await one.attempt()).settlement == Delivered(400)
    for name in ("chat", "log"):
        assert await one.entries(name) == [BY_MODEL]
    await one.balanced()


async def test_a_failure_is_tried_again_and_the_last_one_ends_plainly(
    bench: New, redis: Redis, model: Model
) -> None:
    one = bench(redis)
    model.default = refuses(500)
    assert isinstance((await one.attempt(attempt=3)).settlement, Later)
    assert await one.entries("chat") == []
    settling = await one.attempt(attempt=4)
    assert settling.settlement == Delivered(500)
    assert settling.attempt is not None
    assert settling.attempt.kind is OutcomeKind.FAILED
    assert await one.entries("chat") == await one.entries("log") == [PLAIN]
    await one.balanced()


@pytest.mark.parametrize("status", [400, 401, 422])
async def test_what_is_refused_for_good_ends_plainly_at_once(
    bench: New, connected: Callable[..., Redis], valkey: Server, model: Model, status: int
) -> None:
    one = bench(connected(valkey))
    model.default = refuses(status)
    assert (await one.attempt()).settlement == Delivered(status)
    assert await one.entries("chat") == [PLAIN]


async def test_a_resolution_goes_on_without_a_call(
    bench: New, connected: Callable[..., Redis], valkey: Server, model: Model
) -> None:
    one = bench(connected(valkey))
    assert (await one.attempt(of=alert(status=Status.RESOLVED))).settlement == Delivered()
    assert await one.entries("chat") == [PLAIN | {"ai_summary": "RESOLVED: disk on db1"}]
    assert model.requests == []


@pytest.mark.parametrize("reason", [Reason.MAX_AGE, Reason.MAX_DELIVERIES])
async def test_what_would_die_without_an_attempt_ends_plainly(
    bench: New, connected: Callable[..., Redis], valkey: Server, model: Model, reason: Reason
) -> None:
    one = bench(connected(valkey))
    item = Settling(Entry("1-1", {}, 6), delivery("k"), Dead(reason), claimed=True)
    one.deliverer.conclude(item)
    assert (await one.next()).settlement == Delivered()
    assert await one.entries("chat") == [PLAIN]
    assert model.requests == []


async def test_what_goes_on_killing_replicas_dies(
    bench: New, connected: Callable[..., Redis], valkey: Server
) -> None:
    one = bench(connected(valkey))
    item = Settling(Entry("1-1", {}, 11), delivery("k"), Dead(Reason.MAX_DELIVERIES), claimed=True)
    one.deliverer.conclude(item)
    assert await one.next() == item
    assert await one.entries("chat") == []


async def test_what_nobody_can_read_dies(bench: New, connected: Callable[..., Redis], valkey: Server) -> None:
    one = bench(connected(valkey))
    item = Settling(Entry("1-1", {}), None, Dead(Reason.MALFORMED), claimed=False)
    one.deliverer.conclude(item)
    assert await one.next() == item


async def test_a_full_queue_takes_it_as_a_dead_letter(bench: New, redis: Redis) -> None:
    one = bench(redis, max_depth=1)
    await redis.xadd(keys.stream(NAMESPACE, "chat"), {"in": "the way"})
    await one.redis.hincrby(keys.ledger(NAMESPACE, "chat"), "accepted", 1)
    assert (await one.attempt()).settlement == Delivered(200)
    [(_, letter)] = await one.redis.xrange(keys.dead(NAMESPACE, "chat"))
    assert (letter[b"key"], letter[b"reason"]) == (b"k:summarizer", b"queue_full")
    assert await one.entries("log") == [BY_MODEL]
    await one.balanced()


async def test_no_room_at_all_is_a_failure_and_in_the_end_a_dead_letter(bench: New, redis: Redis) -> None:
    one = bench(redis, max_depth=1, max_dead=1)
    for key in (keys.stream(NAMESPACE, "chat"), keys.dead(NAMESPACE, "chat")):
        await redis.xadd(key, {"in": "the way"})
    full = "no room at chat: queue and dead letters are full"
    waiting = (await one.attempt()).settlement
    assert isinstance(waiting, Later)
    assert (waiting.spends, waiting.error) == (True, full)
    dead = (await one.attempt(attempt=4)).settlement
    assert dead == Dead(Reason.ATTEMPTS, 200, full)
    assert await one.entries("log") == [BY_MODEL]
    await redis.delete(keys.stream(NAMESPACE, "chat"))
    assert (await one.attempt()).settlement == Delivered(200)
    assert await one.entries("chat") == [BY_MODEL]


async def test_trouble_with_redis_is_waited_out(
    bench: New, new_server: Callable[..., Server], connected: Callable[..., Redis], model: Model
) -> None:
    server = new_server("valkey")
    one = bench(connected(server))
    await one.redis.config_set("maxmemory", 1)
    one.deliverer.deliver(Entry("1-1", {}), delivery("k"))
    await model.wait_for(1)

    def refused() -> bool:
        told = one.metrics.registry.get_sample_value("redispatch_redis_errors_total", {"kind": "oom"})
        return (told or 0) >= 3

    await eventually(refused, "three refusals")
    assert one.settled.empty()
    await one.redis.config_set("maxmemory", 0)
    await one.redis.script_flush()
    assert (await one.next()).settlement == Delivered(200)
    assert await one.entries("chat") == [BY_MODEL]
    assert len(model.requests) == 1


async def test_a_bug_in_what_is_made_is_a_failed_attempt(
    bench: New, connected: Callable[..., Redis], valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench(connected(valkey))

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(one.deliverer._kind, "instead", broken)
    monkeypatch.setattr(one.deliverer._follow_up, "append", broken)
    assert isinstance((await one.attempt()).settlement, Later)
    dead = (await one.attempt(attempt=4)).settlement
    assert dead == Dead(Reason.ATTEMPTS, 200, "internal: ZeroDivisionError")


async def test_what_is_too_old_after_a_failure_ends_plainly(
    bench: New, connected: Callable[..., Redis], valkey: Server, model: Model
) -> None:
    one = bench(connected(valkey))
    model.default = refuses(500)
    one.deliverer._replica.clock.set(delivery().first_at + Duration(601).ms)
    assert (await one.attempt()).settlement == Delivered(500)
    assert await one.entries("chat") == [PLAIN]

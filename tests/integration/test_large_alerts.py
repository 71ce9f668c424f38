"""Alerts that are too large for Redis, through a real lane: fetched before they are sent, erased after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from common import reference
from common.alert import Alert, Status
from common.append import QUEUED, Store
from common.keys import Destination
from common.objects import Objects, place
from common.outcomes import OutcomeKind
from common.record import Record, parse
from common.settings import Batch, Dispatcher, Retry, Settings
from common.settings import Objects as Section
from common.snapshot import Snapshot, snapshot
from common.stored import Away
from common.units import Duration
from common.wire import Wire
from dispatcher.lanes import Lanes
from dispatcher.metrics import Metrics
from dispatcher.quarantine import Quarantine
from dispatcher.replica import Clock, Pulse, Replica
from dispatcher.sweep import Sweeper
from tests.support.deliveries import alert, webhook
from tests.support.fleet import eventually
from tests.support.model import Model, refuses, summary
from tests.support.receiver import Answer, Receiver
from tests.support.servers import Server, one_kind
from tests.support.settings import build

DEADLINE = 30.0
TEXT = "x" * 20_000


class Bench:
    """One process with lanes; `append` puts large alerts for them."""

    def __init__(self, redis: Redis, settings: Settings, tasks: asyncio.TaskGroup) -> None:
        self.redis: Any = redis
        self.settings = settings
        self.metrics = Metrics()
        self.name = settings.destinations[0].name
        self.at = Destination(settings.redis.namespace, self.name)
        self.objects = Objects(settings.objects.url, settings.redis.namespace)
        self.replica = Replica(
            redis=redis,
            bell=redis,
            consumer="me",
            settings=settings,
            metrics=self.metrics,
            quarantine=Quarantine(),
            clock=Clock(),
            pulse=Pulse(60),
            stopping=asyncio.Event(),
            tasks=tasks,
        )
        self.lanes = Lanes(self.replica)

    async def start(self) -> None:
        """Deliver."""
        self.lanes.use(self.settings, await self.lanes.make(self.settings))
        async with asyncio.timeout(DEADLINE):
            await self.lanes.begun()

    async def append(self, *keys: str, **fields: Any) -> list[Alert]:
        """Large ones; what was appended."""
        alerts = [alert(key=key, summary=TEXT + key, **fields) for key in keys]
        store = Store(Wire(self.redis), self.settings, cluster=True)
        told = await store.append(alerts, {self.name: list(range(len(keys)))})
        assert told == [{self.name: QUEUED}] * len(keys)
        return alerts

    async def there(self, name: str | None = None) -> set[str]:
        """What the store has."""
        wanted = name or self.name
        return {each async for page in self.objects.pages() for at, each, _ in page if at == wanted}

    async def listed(self) -> set[str]:
        """What is referred to."""
        return {each.decode() for each in await self.redis.smembers(self.at.objects)}

    async def snapshot(self) -> Snapshot:
        """With a ledger that is exact."""
        told = await snapshot(self.redis, self.settings.redis.namespace, self.name)
        assert told.unaccounted == 0, told
        return told

    async def record(self, key: str) -> Record:
        """What is known of it."""
        return parse(await self.redis.get(self.at.record(key)))

    async def aged(self) -> None:
        """Until what waits is some ms old, by the server's clock."""
        [(entry_id, _)] = await self.redis.xrevrange(self.at.stream, count=1)
        since = int(entry_id.split(b"-")[0])

        async def old() -> bool:
            seconds, micros = await self.redis.time()
            return bool(seconds * 1000 + micros // 1000 > since + 5)

        await eventually(old, "some ms")

    async def died(self, count: int = 1) -> list[dict[str, str]]:
        """Dead letters, once there are so many."""

        async def letters() -> list[Any]:
            found = await self.redis.xrange(self.at.dead)
            return list(found) if len(found) >= count else []

        found = await eventually(letters, f"{count} dead letters")
        return [{n.decode(): v.decode() for n, v in fields.items()} for _, fields in found]

    async def emptied(self) -> None:
        """Until nothing is left, neither in the queue nor of objects."""

        async def empty() -> bool:
            told = await self.snapshot()
            return not told.depth and not await self.there() and not await self.listed()

        await eventually(empty, "nothing left")


Make = Callable[..., Bench]


@pytest.fixture
async def bench(server: Server, redis: Redis, receiver: Receiver, tmp_path: Path) -> AsyncIterator[Make]:
    """`bench(batch=...)`: one webhook, on each kind of server; drained in the end."""
    made: list[Bench] = []
    async with asyncio.TaskGroup() as tasks:

        def make(*more: Any, first: Any = None, **fields: Any) -> Bench:
            to = first or webhook(receiver.url, **fields)
            settings = build(
                server.url,
                [to, *more],
                objects=Section(url=str(tmp_path / "objects")),
                dispatcher=Dispatcher(visibility_timeout=Duration(2)),
            )
            made.append(Bench(redis, settings, tasks))
            return made[-1]

        yield make
        async with asyncio.timeout(DEADLINE):
            for each in made:
                await each.lanes.drain()


async def test_delivered_whole_and_erased(bench: Make, receiver: Receiver) -> None:
    here = bench()
    await here.start()
    (large,) = await here.append("k")
    (request,) = await receiver.wait_for(1)
    assert request.json()["data"]["summary"] == large.summary
    await here.emptied()
    assert (await here.record("k")).state == "delivered"


async def test_a_failure_keeps_it_for_the_next_attempt(bench: Make, receiver: Receiver) -> None:
    receiver.answers.append(Answer(500))
    here = bench(retry=Retry(base=Duration(0.01), cap=Duration(0.01)))
    await here.start()
    await here.append("k")
    await here.emptied()
    assert [status for _, status in receiver.answered] == [500, 200]
    assert [each.json()["data"]["summary"] for each in receiver.requests] == [TEXT + "k"] * 2


async def test_in_a_batch_with_small_ones(bench: Make, receiver: Receiver) -> None:
    here = bench(batch=Batch(max=3, wait=Duration(60)))
    await here.start()
    await here.append("a", "b")
    small = alert(key="c", summary="small")
    await Store(Wire(here.redis), here.settings, cluster=True).append([small], {"pager": [0]})
    await here.emptied()
    (request,) = receiver.requests
    lengths = sorted(len(each["summary"]) for each in request.json()["data"]["alerts"])
    assert lengths == [5, len(TEXT) + 1, len(TEXT) + 1]


async def test_duplicates_and_superseded_firings_are_not_fetched(
    bench: Make, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    get = Objects.get

    async def seen(self: Objects, name: str, told: reference.Reference) -> bytes:
        fetched.append(told.object)
        return await get(self, name, told)

    monkeypatch.setattr(Objects, "get", seen)
    here = bench()
    await here.append("over", status=Status.RESOLVED, ends_at=alert().timestamp)
    await here.start()
    await here.emptied()
    await here.append("late")
    await here.emptied()
    assert len(fetched) == 1
    assert (await here.record("late")).error == "superseded"
    assert [request.id for request in receiver.requests] == ["over"]
    assert (await here.snapshot()).ledger.superseded == 1


@pytest.mark.parametrize("what", ["missing", "changed", "another"])
async def test_what_is_not_what_was_put_dies(bench: Make, receiver: Receiver, what: str) -> None:
    here = bench()
    await here.append("k")
    (name,) = await here.there()
    path = f"redispatch/pager/{name}"
    stored = await place(here.settings.objects.url).get(path, 1 << 20)
    await here.objects.delete("pager", [name])
    if what != "missing":
        other = stored[:-10] if what == "changed" else stored.replace(b"xx", b"yy", 1)
        await place(here.settings.objects.url).put(path, other)
    await here.start()
    (letter,) = await here.died()
    assert (letter["reason"], letter["attempts"], letter["object"]) == ("object", "0", name)
    assert name in letter["error"]
    assert receiver.requests == []
    assert await here.listed() == {name}
    await here.snapshot()


async def test_an_object_that_is_no_alert_dies_as_malformed(bench: Make) -> None:
    here = bench()
    told = await here.objects.put("pager", alert(), b'{"v":1}')
    fields = {"key": "k", "alert": reference.encode(told), "attempt": "0", "first_at": "4000000000000"}
    await here.redis.xadd(here.at.stream, {**fields, "object": told.object})
    await here.redis.hincrby(here.at.ledger, "accepted", 1)
    await here.start()
    (letter,) = await here.died()
    assert letter["reason"] == "malformed"


async def test_an_object_of_a_newer_version_waits_unspent(bench: Make) -> None:
    here = bench()
    told = await here.objects.put("pager", alert(), b'{"v":9}')
    fields = {"key": "k", "alert": reference.encode(told), "attempt": "0", "first_at": "4000000000000"}
    await here.redis.xadd(here.at.stream, {**fields, "object": told.object})
    await here.redis.hincrby(here.at.ledger, "accepted", 1)
    await here.start()
    await eventually(lambda: here.redis.zcard(here.at.retry), "it waits")
    record = await here.record("k")
    assert (record.state, record.attempts) == ("retrying", 0)


async def test_a_store_that_is_away_spends_nothing(
    bench: Make, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    get = Objects.get
    away = True

    async def gone(self: Objects, name: str, told: reference.Reference) -> bytes:
        nonlocal asked
        asked += 1
        if away:
            raise Away("gone fishing")
        return await get(self, name, told)

    monkeypatch.setattr(Objects, "get", gone)
    here = bench()
    await here.append(*(f"k{n}" for n in range(40)))
    await here.start()

    async def all_wait() -> bool:
        return bool(await here.redis.zcard(here.at.retry) == 40)

    await eventually(all_wait, "all of them wait")
    assert asked <= 32  # those of the first seconds; the rest is not asked for
    small = alert(key="small")
    await Store(Wire(here.redis), here.settings, cluster=True).append([small], {"pager": [0]})
    await receiver.wait_ids({"small"})

    async def waits() -> Record | None:
        record = await here.record("k0")
        return record if record.state == "retrying" else None  # its time may have come again meanwhile

    record = await eventually(waits, "it waits")
    assert (record.attempts, record.status, record.error) == (0, None, "the object store is away")
    assert await here.redis.hgetall(here.at.gate) == {}
    assert here.metrics.of["pager"].attempts[OutcomeKind.FAILED]._value.get() == 0
    away = False
    await here.emptied()
    assert {request.id for request in receiver.requests} == {"small", *(f"k{n}" for n in range(40))}
    assert not [request for request, status in receiver.answered if status != 200]


async def test_a_probe_that_can_not_be_fetched_says_nothing_of_the_destination(
    bench: Make, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, away = Objects.get, asyncio.Event()

    async def gone(self: Objects, name: str, told: reference.Reference) -> bytes:
        if not away.is_set():
            raise Away("gone fishing")
        return await get(self, name, told)

    monkeypatch.setattr(Objects, "get", gone)
    here = bench()
    await here.redis.hset(here.at.gate, mapping={"state": "breaker", "until": "1", "reason": "HTTP 500"})
    await here.append("k")
    await here.start()
    closed = {b"state": b"breaker", b"until": b"1", b"reason": b"HTTP 500"}

    async def is_as_it_was() -> bool:
        waits, gate = await here.redis.zcard(here.at.retry), await here.redis.hgetall(here.at.gate)
        return bool(waits) and gate == closed  # until its time comes again

    await eventually(is_as_it_was, "it waits, and the gate is as it was")
    assert receiver.requests == []
    away.set()
    await here.emptied()
    assert not await here.redis.hget(here.at.gate, "state")
    assert (await here.record("k")).attempts == 1


async def test_what_is_too_old_dies_without_its_store(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(self: Objects, name: str, told: reference.Reference) -> bytes:
        raise AssertionError("nobody has to look")

    here = bench(retry=Retry(max_age=Duration(0.001)))
    await here.append("k")
    monkeypatch.setattr(Objects, "get", gone)
    await here.aged()
    await here.start()
    (letter,) = await here.died()
    assert letter["reason"] == "max_age"
    assert await here.there() == await here.listed() == {letter["object"]}


async def test_stopping_hands_back_what_is_being_fetched(
    bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, over = asyncio.Event(), asyncio.Event()
    get = Objects.get

    async def slow(self: Objects, name: str, told: reference.Reference) -> bytes:
        begun.set()
        await over.wait()
        return await get(self, name, told)

    monkeypatch.setattr(Objects, "get", slow)
    here = bench()
    await here.append("k")
    await here.start()
    async with asyncio.timeout(DEADLINE):
        await begun.wait()
        draining = asyncio.create_task(here.lanes.drain())
        await asyncio.sleep(0)
        over.set()
        await draining
    told = await here.snapshot()
    assert (told.depth, told.in_flight) == (1, 0)
    assert (await here.record("k")).attempts == 0
    assert await here.there() == await here.listed()


async def test_what_can_not_be_erased_is_swept(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(self: Objects, name: str, told: Any) -> None:
        raise Away("gone fishing")

    here = bench()
    await here.start()
    with monkeypatch.context() as patched:
        patched.setattr(Objects, "delete", gone)
        await here.append("k")

        async def delivered() -> bool:
            return bool((await here.snapshot()).ledger.delivered)

        await eventually(delivered, "the delivery")
        assert await here.listed() == set()
        await here.lanes.drain()
        assert len(await here.there()) == 1
    sweeper, other = (Sweeper(here.replica) for _ in range(2))
    monkeypatch.setattr("dispatcher.sweep.OLD", -60_000)
    told = await asyncio.gather(sweeper.turn(), other.turn())
    assert [each.removed for each in told if each is not None] == [1]  # one of them at a time
    assert await here.there() == set()
    assert await sweeper.turn() is None


async def test_a_sweeper_without_a_store_does_nothing(bench: Make) -> None:
    here = bench()
    assert await Sweeper(here.replica).turn() is None
    assert await here.redis.keys("*sweep*") == []


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    """A model that refuses everything."""
    async with Model() as made:
        yield made


@one_kind
async def test_a_plain_summary_is_made_of_the_alert_not_of_what_stands_for_it(
    bench: Make, model: Model, receiver: Receiver
) -> None:
    model.answers.append(refuses(400))
    to = summary(model.base, then=["chat"], retry=Retry(attempts=1))
    here = bench(webhook(receiver.url, name="chat"), first=to)
    await here.append("k", annotations={"runbook": "y" * 20_000})
    await here.start()
    (request,) = await receiver.wait_for(1)
    told = request.json()["data"]
    assert (told["host"], len(told["annotations"]["runbook"])) == ("db1", 20_000)
    await here.emptied()

    async def erased() -> bool:
        return not await here.there("chat")

    await eventually(erased, "what went on is erased, too")


@one_kind
async def test_one_that_waited_too_long_for_its_summary_still_has_a_plain_one(
    bench: Make, model: Model, receiver: Receiver
) -> None:
    to = summary(model.base, then=["chat"], retry=Retry(max_age=Duration(0.001)))
    here = bench(webhook(receiver.url, name="chat"), first=to)
    await here.append("k")
    await here.aged()
    await here.start()
    (request,) = await receiver.wait_for(1)
    assert request.json()["data"]["host"] == "db1"
    assert model.requests == []
    await here.emptied()

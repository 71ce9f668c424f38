"""Alerts that are too large for Redis: what the scripts list, and which objects are there, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import NoScriptError

from common import append as step
from common.alert import Alert, encode
from common.append import QUEUED, Store
from common.keys import Destination
from common.objects import Objects, place
from common.outcomes import Dead, Delivered, Duplicate, Later, Reason, Settlement, Superseded
from common.reference import Reference, decode
from common.scripts import Script
from common.settings import Objects as Section
from common.settings import Queue, Settings
from common.stored import Away
from common.wire import Wire
from dispatcher.claim import Verdict
from dispatcher.entry import Entry, read
from dispatcher.settle import Settled
from dispatcher.sweep import OLD, Swept, sweep
from ingest.append import Appender
from ingest.event import Unavailable
from ingest.route import Router
from tests.integration.protocol.picture import NAMESPACE
from tests.integration.protocol.stand import Stand, event, made
from tests.support.servers import Server
from tests.support.settings import build

TEXT = "x" * 20_000
TOMORROW = 4_000_000_000_000  # ms
_discard, _retire = (Script("ops", name) for name in ("discard", "retire"))


class Large(Stand):
    """A stand with an object store; `append("k")` is of a large alert."""

    def __init__(self, redis: Redis, directory: Path, *, cluster: bool) -> None:
        self.directory = directory
        super().__init__(redis, cluster=cluster)

    def limit(self, max_depth: int = 1000, max_dead: int = 1000, names: tuple[str, ...] = ("one",)) -> None:
        self.settings = settings_of(self.directory, names, Queue(max_depth=max_depth, max_dead=max_dead))
        self.appender = Appender(self.redis, self.settings, Router(self.settings), cluster=self.cluster)
        self.max_dead = max_dead
        self.objects = Objects(self.settings.objects.url, NAMESPACE)

    async def append(self, *keys: str, **fields: Any) -> Any:
        return await super().append(*keys, **{"summary": TEXT} | fields)

    async def mine(self, consumer: str) -> list[Entry]:
        """All that waits, taken and claimed."""
        entries = await self.take(consumer)
        assert await self.claim(consumer, *entries) == [Verdict.DELIVER] * len(entries)
        return entries

    async def listed(self, name: str = "one") -> set[str]:
        """What the scripts list."""
        return {each.decode() for each in await self.redis.smembers(Destination(NAMESPACE, name).objects)}

    async def there(self, name: str = "one") -> set[str]:
        """What the store has."""
        return {each async for page in self.objects.pages() for where, each, _ in page if where == name}

    async def both(self) -> int:
        """How many objects there are, each of them listed."""
        there = await self.there()
        assert await self.listed() == there
        return len(there)

    async def get(self, stored: bytes, name: bytes) -> bytes:
        """What a reference leads to."""
        return await self.objects.get("one", decode(stored, name))

    async def sweep(self, later: int = OLD + 60_000) -> Swept:
        """As if so much time had passed."""
        seconds, _ = await self.redis.time()
        return await sweep(self.redis, self.objects, NAMESPACE, seconds * 1000 + later)


def settings_of(directory: Path, names: tuple[str, ...], queue: Queue) -> Settings:
    return build(destinations=names, queue=queue, objects=Section(url=str(directory)))


@pytest.fixture
async def stand(server: Server, redis: Redis, tmp_path: Path) -> Large:
    """On each kind of server, with an object store that is not there yet."""
    stand = Large(redis, tmp_path / "objects", cluster=server.kind == "cluster")
    await stand.begin()
    return stand


async def test_a_large_one_is_a_reference(stand: Large) -> None:
    (stored,) = await stand.append("k")
    assert (stored.status, stored.destinations) == ("queued", ["one"])
    [(_, fields)] = await stand.redis.xrange(stand.at.stream)
    assert list(fields) == [b"key", b"alert", b"attempt", b"first_at", b"object"]
    assert len(fields[b"alert"]) < 400
    assert await stand.get(fields[b"alert"], fields[b"object"]) == encode(made(key="k", summary=TEXT))
    assert await stand.listed() == {fields[b"object"].decode()}
    assert await stand.both() == 1


async def test_small_and_large_in_one_request(stand: Large) -> None:
    events = [event(f"k{n}", summary=TEXT if n % 2 else "small") for n in range(6)]
    stored = await stand.appender.submit(events)
    assert [one.status for one in stored] == ["queued"] * 6
    entries = await stand.take("a")
    assert [each.fields[b"key"] for each in entries] == [f"k{n}".encode() for n in range(6)]
    assert [each.object is not None for each in entries] == [False, True] * 3
    assert await stand.both() == 3
    assert await stand.claim("a", *entries) == [Verdict.DELIVER] * 6
    for each in entries[1::2]:
        reference = read(each).reference
        assert reference is not None
        assert b'"key":"%s"' % each.fields[b"key"] in await stand.objects.get("one", reference)


async def test_each_destination_has_an_object_of_its_own(stand: Large) -> None:
    stand.limit(names=("one", "two"))
    await stand.append("a", "b")
    first, second = await stand.listed("one"), await stand.listed("two")
    assert (len(first), len(second)) == (2, 2)
    assert not first & second
    assert (await stand.there("one"), await stand.there("two")) == (first, second)


async def test_the_limit_is_that_of_the_stored_form(stand: Large) -> None:
    size = len(encode(made(key="k", summary="")))
    for key, length in (("k", 8192 - size), ("l", 8193 - size)):
        await stand.append(key, summary="x" * length)
    assert [each.object is not None for each in await stand.take("a")] == [False, True]


async def test_a_duplicate_leaves_nothing(stand: Large) -> None:
    await stand.append("k", "k")
    assert await stand.both() == 1
    before = await stand.listed()
    (again,) = await stand.append("k", value=7)
    assert again.status == "duplicate"
    assert await stand.listed() == await stand.there() == before


async def test_what_has_no_room_leaves_nothing(stand: Large) -> None:
    stand.limit(max_depth=1, max_dead=1)
    await stand.append("first")
    await stand.append("dies")
    with pytest.raises(Unavailable, match="full"):
        await stand.append("third")
    (letter,) = await stand.letters()
    assert (letter["key"], letter["reason"]) == ("dies", "queue_full")
    assert await stand.get(letter["alert"].encode(), letter["object"].encode())
    assert await stand.both() == 2


@pytest.mark.parametrize(
    ("settlement", "claimed", "left"),
    [
        (Delivered(200), True, 0),
        (Superseded(), True, 0),
        (Duplicate(), False, 0),
        (Later(0, spends=True), True, 1),
        (Later(0, spends=False), False, 1),
        (Dead(Reason.ATTEMPTS), True, 1),
    ],
    ids=lambda told: type(told).__name__.lower() if not isinstance(told, int) else None,
)
async def test_what_has_ended_is_listed_no_more(
    stand: Large, settlement: Settlement, claimed: bool, left: int
) -> None:
    (entry,) = await stand.claimed("a", "k")
    assert await stand.settle("a", (entry, settlement), claimed=claimed) == [Settled.DONE]
    assert len(await stand.listed()) == left
    await stand.balanced()


async def test_a_fenced_one_stays_listed(stand: Large) -> None:
    (entry,) = await stand.claimed("a", "k")
    assert await stand.settle("b", (entry, Later(0, spends=True))) == [Settled.FENCED]
    other = Entry(entry.id, {**entry.fields, b"key": b"other"}, entry.deliveries)
    assert await stand.settle("a", (other, Delivered(200))) == [Settled.FENCED]
    assert await stand.both() == 1


async def test_of_a_batch_only_those_that_ended_go(stand: Large) -> None:
    await stand.append("small", summary="s")
    await stand.append(*"abcd")
    entries = await stand.take("r")
    assert await stand.claim("r", *entries) == [Verdict.DELIVER] * 5
    small, a, b, c, d = entries
    answers = await stand.settle(
        "r",
        (a, Later(0, spends=True)),
        (small, Delivered(200)),
        (b, Delivered(200)),
        (c, Dead(Reason.REJECTED)),
        (d, Superseded()),
    )
    assert answers == [Settled.DONE] * 5
    assert await stand.listed() == {a.object, c.object}


async def test_a_reference_goes_along_with_retries_and_deaths_and_replays(stand: Large) -> None:
    (entry,) = await stand.claimed("a", "k")
    await stand.settle("a", (entry, Later(0, spends=True)))
    (again,) = await stand.take("a")
    assert again.object == entry.object
    await stand.claim("a", again)
    await stand.settle("a", (again, Dead(Reason.ATTEMPTS)))
    (letter,) = await stand.letters()
    assert letter["object"] == entry.object
    for force in ("", "force"):
        assert (await stand.replay(force=force))[0] == 1
        (replayed,) = await stand.take("a")
        assert (replayed.object, b"force" in replayed.fields) == (entry.object, bool(force))
        assert read(replayed).reference == read(entry).reference
        await stand.claim("a", replayed)
        await stand.settle("a", (replayed, Dead(Reason.ATTEMPTS)))
    assert await stand.both() == 1


async def test_at_the_cap_of_dead_letters_it_waits_with_its_reference(stand: Large) -> None:
    stand.limit(max_dead=0)
    (entry,) = await stand.claimed("a", "k")
    assert await stand.settle("a", (entry, Dead(Reason.ATTEMPTS))) == [Settled.WAITS]
    [member] = await stand.redis.zrange(stand.at.retry, 0, -1)
    assert (entry.object or "").encode() in member
    assert await stand.both() == 1


async def test_retire_keeps_what_it_moves(stand: Large) -> None:
    await stand.append("a", "b")
    (entry, _) = await stand.mine("r")
    await stand.settle("r", (entry, Later(60, spends=True)))
    at = stand.at
    touched = [at.stream, at.retry, at.dead, at.ledger]
    assert (await _retire(stand.redis, touched, ["dispatchers", 0, 100, 10]))[:3] == [2, 0, b""]
    assert {letter["object"] for letter in await stand.letters()} == await stand.listed()
    assert await stand.both() == 2


async def test_discard_says_which_objects_nobody_needs(stand: Large) -> None:
    await stand.append("small", summary="s")
    await stand.append("k")
    for entry in await stand.mine("a"):
        await stand.settle("a", (entry, Dead(Reason.ATTEMPTS)))
    at = stand.at
    ids = [entry_id for entry_id, _ in await stand.redis.xrange(at.dead)]
    done, _, *names = await _discard(stand.redis, [at.dead, at.ledger, at.objects], [*ids, ids[0]])
    assert [done, *names] == [2, *(each.encode() for each in await stand.there())]
    assert await stand.listed() == set()
    await stand.balanced()


# A store that is away


class Failing:
    """A place where nothing can be put after the first few."""

    def __init__(self, url: str, good: int) -> None:
        self._place: Any = place(url)
        self.good = good

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)

    async def put(self, path: str, content: bytes) -> None:
        """As many as are good."""
        self.good -= 1
        if self.good < 0:
            raise Away("gone fishing")
        await self._place.put(path, content)


async def test_a_store_that_is_away_refuses_the_large_and_nothing_else(
    stand: Large, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.limit(names=("one", "two"))
    failing = Failing(stand.settings.objects.url, good=3)
    monkeypatch.setattr("common.objects.place", lambda url: failing)
    with pytest.raises(Unavailable, match=r"object store could not take it$"):
        await stand.append("a", "b", "c")
    assert await stand.redis.xlen(stand.at.stream) == 0
    assert await stand.listed() == await stand.there("one") == await stand.there("two") == set()
    assert await stand.state("a") == "absent"
    assert [one.status for one in await stand.append("small", summary="s")] == ["queued"]
    failing.good = 100
    assert [one.status for one in await stand.append("a", "b", "c")] == ["queued"] * 3


async def test_large_ones_do_not_hold_up_the_small(stand: Large, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    begun, over = asyncio.Event(), asyncio.Event()
    put = Objects.put

    async def slow(self: Objects, name: str, alert: Alert, stored: bytes) -> Reference:
        begun.set()
        await over.wait()
        return await put(self, name, alert, stored)

    monkeypatch.setattr(Objects, "put", slow)
    large = asyncio.create_task(stand.appender.submit([event("large", summary=TEXT)], len(TEXT)))
    await begun.wait()
    async with asyncio.timeout(30):
        assert (await stand.append("small", summary="s"))[0].status == "queued"
    assert not large.done()
    over.set()
    assert (await large)[0].status == "queued"


# What a crash leaves


class Lost(Wire):
    """Loses the connection before or after its commands."""

    def __init__(self, redis: Redis, *, after: bool) -> None:
        super().__init__(redis)
        self.after = after

    async def pipeline(self, commands: Any, after: Any = None) -> Any:
        """As a lost reply, or a request that never left."""
        if self.after:
            await super().pipeline(commands, after)
        raise LostConnection


@pytest.mark.parametrize("after", [False, True])
async def test_a_crash_around_append(stand: Large, after: bool) -> None:
    store = Store(Lost(stand.redis, after=after), stand.settings, cluster=stand.cluster)
    await stand.wire.execute_command("SCRIPT", "LOAD", step._script.text)
    with pytest.raises(LostConnection):
        await store.append([made(key="k", summary=TEXT)], {"one": [0]})
    assert len(await stand.there()) == 1
    assert len(await stand.listed()) == after
    assert await stand.sweep(later=OLD - 60_000) == Swept(seen=1, young=1)
    assert await stand.sweep() == Swept(seen=1, removed=not after)
    assert await stand.both() == after
    (stored,) = await stand.append("k")
    assert stored.status == ("duplicate" if after else "queued")
    assert await stand.both() == 1


async def test_scripts_that_are_forgotten_half_way(stand: Large, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a cluster one node has run its part when another says NOSCRIPT: what it has is not taken away."""
    stand.limit(names=("one", "two"))
    store, again = Store(stand.wire, stand.settings, cluster=True), stand.wire.pipeline

    async def forgetful(commands: Any, after: Any) -> Any:
        replies = await again(commands[:-1], after)
        monkeypatch.undo()
        return [*replies, NoScriptError()]

    await stand.wire.execute_command("SCRIPT", "LOAD", step._script.text)
    monkeypatch.setattr(stand.wire, "pipeline", forgetful)
    told = await store.append([made(key="k", summary=TEXT)], {"one": [0], "two": [0]})
    assert told == [{"one": QUEUED, "two": QUEUED}]
    for name in ("one", "two"):
        assert len(await stand.listed(name)) == 1
        assert await stand.listed(name) == await stand.there(name)


async def test_a_crash_between_settle_and_removal(stand: Large) -> None:
    (entry,) = await stand.claimed("a", "k")
    await stand.settle("a", (entry, Delivered(200)))
    assert (await stand.listed(), len(await stand.there())) == (set(), 1)
    assert (await stand.sweep()).removed == 1
    assert await stand.both() == 0


async def test_the_sweeper_leaves_what_is_referred_to(stand: Large) -> None:
    stand.limit(max_depth=4, names=("one", "two"))
    await stand.append(*"abcde")
    retried, dead, *_ = await stand.mine("a")
    await stand.settle("a", (retried, Later(60, spends=True)), (dead, Dead(Reason.ATTEMPTS)))
    orphans = [await stand.objects.put(name, made(), b"{}") for name in ("one", "two", "removed")]
    assert await stand.sweep(later=0) == Swept(seen=13, young=13)
    assert await stand.sweep() == Swept(seen=13, removed=3)
    assert await stand.both() == 5
    assert await stand.listed("two") == await stand.there("two")
    assert not {each.object for each in orphans} & await stand.there("two")
    assert await stand.sweep() == Swept(seen=10)


async def test_what_took_too_long_is_not_relied_on(stand: Large, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process stood still for so long that the sweeper may be about to take its objects."""
    monkeypatch.setattr(step, "LEASE", -1.0)
    with pytest.raises(Unavailable, match="object store"):
        await stand.append("k")
    assert await stand.listed() == set()
    assert await stand.sweep(later=TOMORROW) == Swept(seen=1, removed=1)

"""An alert's trace: the same on every way that a delivery can take, and known to no key and no comparison."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from redis.asyncio import Redis

from common.outcomes import Dead, Later, Reason
from common.scripts import Script
from dispatcher.claim import Verdict
from dispatcher.entry import Entry, read
from ingest.event import Stored
from tests.integration.protocol.stand import Stand, event
from tests.integration.protocol.test_claim_check import TEXT, Large
from tests.support.servers import Server, one_kind

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 vendor=a"
OTHER = "00-" + "1" * 32 + "-" + "2" * 16 + "-00"
FIELDS = [b"key", b"alert", b"attempt", b"first_at"]
_retire = Script("ops", "retire")


async def submit(stand: Stand, key: str, trace: str | None = TRACE, **fields: Any) -> Stored:
    [stored] = await stand.appender.submit([replace(event(key, **fields), trace=trace)])
    return stored


async def retaken(stand: Stand) -> Entry:
    """The one entry there is, taken."""
    [entry] = await stand.take("b")
    return entry


async def test_it_is_a_field_of_those_that_have_one(stand: Stand) -> None:
    events = [replace(event(key), trace=trace) for key, trace in (("a", None), ("b", TRACE), ("c", OTHER))]
    await stand.appender.submit(events)
    a, b, c = await stand.take("a")
    assert list(a.fields) == FIELDS
    assert list(b.fields) == list(c.fields) == [*FIELDS, b"trace"]
    assert [read(each).trace for each in (a, b, c)] == [None, TRACE, OTHER]


async def test_no_comparison_knows_of_it(stand: Stand) -> None:
    first = await submit(stand, "k")
    record = await stand.redis.get(stand.at.record("k"))
    for trace in (OTHER, None):
        assert await submit(stand, "k", trace) == replace_status(first)
    assert await stand.redis.get(stand.at.record("k")) == record
    assert read(await retaken(stand)).trace == TRACE
    await stand.balanced()


def replace_status(stored: Stored) -> Stored:
    return Stored(stored.key, "duplicate", stored.destinations, stored.dead)


async def test_a_retry_keeps_it(stand: Stand) -> None:
    await submit(stand, "k")
    [entry] = await stand.take("a")
    assert await stand.claim("a", entry) == [Verdict.DELIVER]
    await stand.settle("a", (entry, Later(0, spends=True, status=500)))
    again = await retaken(stand)
    assert list(again.fields) == [*FIELDS, b"trace"]
    assert (again.attempts, read(again).trace) == (1, TRACE)


async def test_a_dead_letter_and_its_replay_keep_it(stand: Stand) -> None:
    await submit(stand, "k")
    [entry] = await stand.take("a")
    await stand.claim("a", entry)
    await stand.settle("a", (entry, Dead(Reason.ATTEMPTS, 500)))
    [letter] = await stand.letters()
    assert (list(letter)[-2:], letter["trace"]) == (["alert", "trace"], TRACE)
    assert await stand.replay() == [1, 0, b""]
    again = await retaken(stand)
    assert list(again.fields) == [*FIELDS, b"replay_of", b"trace"]
    assert read(again).trace == TRACE


async def test_a_full_queue_s_and_a_retired_one_s_dead_letters_keep_it(stand: Stand) -> None:
    stand.limit(max_depth=1)
    await submit(stand, "a")
    assert (await submit(stand, "b")).dead == ["one"]
    at = stand.at
    words: list[bytes | str | int] = ["dispatchers", 0, 10, 10]
    await _retire(stand.redis, [at.stream, at.retry, at.dead, at.ledger], words)
    assert {letter["key"]: letter["trace"] for letter in await stand.letters()} == {"a": TRACE, "b": TRACE}
    await stand.balanced()


@one_kind
async def test_a_large_alert_has_both(server: Server, redis: Redis, tmp_path: Path) -> None:
    stand = Large(redis, tmp_path / "objects", cluster=False)
    await stand.begin()
    events = [event("small"), replace(event("k", summary=TEXT), trace=TRACE), event("other", summary=TEXT)]
    await stand.appender.submit(events)
    small, other, large = sorted(await stand.mine("a"), key=lambda entry: len(entry.fields))
    assert (list(small.fields), list(other.fields)) == (FIELDS, [*FIELDS, b"object"])
    assert list(large.fields) == [*FIELDS, b"object", b"trace"]
    await stand.settle("a", *((entry, Dead(Reason.ATTEMPTS)) for entry in (small, other, large)))
    assert [letter.get("trace") for letter in await stand.letters()] == [None, None, TRACE]
    assert await stand.replay() == [3, 0, b""]
    traces = [read(entry).trace for entry in await stand.mine("b")]
    assert sorted(traces, key=str) == [TRACE, None, None]


async def test_many_requests_in_one_commit(stand: Stand) -> None:
    traces = [None if n % 3 == 0 else f"00-{n:032x}-{n:016x}-01" for n in range(1, 40)]
    await asyncio.gather(*(submit(stand, f"k{n}", trace) for n, trace in enumerate(traces)))
    told = {entry.fields[b"key"].decode(): read(entry).trace for entry in await stand.take("a")}
    assert told == {f"k{n}": trace for n, trace in enumerate(traces)}

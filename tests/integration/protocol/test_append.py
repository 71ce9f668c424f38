from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from common.outcomes import Dead, Delivered, Reason
from dispatcher.claim import Verdict
from dispatcher.settle import Settled
from ingest.event import Stored, Unavailable
from tests.integration.protocol.stand import Stand, event
from tests.support.servers import Server


def queued(key: str) -> Stored:
    return Stored(key=key, status="queued", destinations=["one"], dead=[])


def duplicate(key: str, *, conflict: bool = False) -> Stored:
    return Stored(key=key, status="duplicate", destinations=["one"], dead=[], conflict=conflict)


async def test_new_key_becomes_an_entry_and_a_record(stand: Stand) -> None:
    assert await stand.append("k") == [queued("k")]
    [(entry_id, fields)] = await stand.redis.xrange(stand.at.stream)
    assert list(fields) == [b"key", b"alert", b"attempt", b"first_at"]
    assert (fields[b"key"], fields[b"attempt"]) == (b"k", b"0")
    record = await stand.record("k")
    assert record is not None
    assert (record.state, record.entry_id, record.deliveries) == ("queued", entry_id.decode(), 0)
    assert await stand.redis.pttl(stand.at.record("k")) > 0
    assert (await stand.balanced()).ledger.accepted == 1
    assert await stand.redis.smembers("{redispatch}:destinations") == {b"one"}


async def test_repeat_is_a_duplicate_and_changes_nothing(stand: Stand) -> None:
    await stand.append("k")
    before = await stand.redis.get(stand.at.record("k")), await stand.look()
    assert await stand.append("k", value=7) == [duplicate("k")]
    after = await stand.look()
    assert await stand.redis.get(stand.at.record("k")) == before[0]
    assert (after.depth, after.ledger) == (before[1].depth, before[1].ledger)


async def test_other_content_is_told_as_a_conflict(stand: Stand) -> None:
    await stand.append("k")
    assert await stand.append("k", summary="other") == [duplicate("k", conflict=True)]


async def test_key_twice_in_one_request_is_one_entry(stand: Stand) -> None:
    assert await stand.append("k", "k") == [queued("k"), duplicate("k")]
    assert (await stand.balanced()).depth == 1


async def test_same_key_fifty_times_at_once_is_one_entry(stand: Stand) -> None:
    replicas = [stand, Stand(stand.redis, cluster=stand.cluster)]
    answers = await asyncio.gather(*(replicas[n % 2].append("k") for n in range(50)))
    assert sorted(answer.status for [answer] in answers) == ["duplicate"] * 49 + ["queued"]
    assert (await stand.balanced()).depth == 1


async def test_full_queue_gives_a_dead_letter_and_then_a_refusal(stand: Stand) -> None:
    stand.limit(max_depth=1, max_dead=1)
    await stand.append("first")
    full = Stored(key="k", status="queued", destinations=[], dead=["one"])
    assert await stand.append("k") == [full]
    assert await stand.state("k") == "dead"
    [letter] = await stand.letters()
    assert (letter["key"], letter["reason"]) == ("k", "queue_full")
    with pytest.raises(Unavailable, match="one"):
        await stand.append("third")
    assert await stand.state("third") == "absent"
    assert await stand.append("first") == [duplicate("first")]  # recognised before room is asked for
    assert await stand.append("k") == [Stored(key="k", status="duplicate", destinations=[], dead=["one"])]
    now = await stand.balanced()
    assert (now.ledger.accepted, now.died) == (2, {"queue_full": 1})


async def test_request_with_no_room_for_one_is_refused_and_a_repeat_finds_the_rest(stand: Stand) -> None:
    stand.limit(max_depth=1, max_dead=1)
    with pytest.raises(Unavailable):
        await stand.append("a", "b", "c")
    stand.limit()
    assert [stored.status for stored in await stand.append("a", "b", "c")] == [
        *("duplicate", "duplicate"),
        "queued",
    ]
    now = await stand.balanced()
    assert (now.depth, now.dead_letters) == (2, 1)


async def test_retries_count_as_depth(stand: Stand) -> None:
    stand.limit(max_depth=1)
    await stand.redis.zadd(stand.at.retry, {"1-1 x": 1})
    assert (await stand.append("k"))[0].dead == ["one"]


async def test_repeat_whose_entry_vanished_is_appended_again_and_lost_is_counted_once(stand: Stand) -> None:
    await stand.append("k", "other")
    record = await stand.record("k")
    assert record is not None
    await stand.redis.xdel(stand.at.stream, record.entry_id)
    assert await stand.append("k") == [queued("k")]
    assert await stand.append("k") == [duplicate("k")]
    now = await stand.balanced()
    assert (now.ledger.accepted, now.ledger.lost, now.depth) == (3, 1, 2)


async def test_repeat_of_one_that_was_delivered_or_died_is_a_duplicate(stand: Stand) -> None:
    good, bad = await stand.claimed("a", "good", "bad")
    await stand.settle("a", (good, Delivered(200)), (bad, Dead(Reason.ATTEMPTS)))
    assert await stand.append("good", "bad") == [
        duplicate("good"),
        Stored(key="bad", status="duplicate", destinations=[], dead=["one"]),
    ]


async def test_forgotten_scripts_are_loaded_again(stand: Stand) -> None:
    for key in ("a", "b"):
        await stand.redis.script_flush()
        assert await stand.append(key) == [queued(key)]
    entries = await stand.take("r")
    await stand.redis.script_flush()
    assert await stand.claim("r", *entries) == [Verdict.DELIVER] * 2
    await stand.redis.script_flush()
    assert await stand.settle("r", *((each, Delivered(200)) for each in entries)) == [Settled.DONE] * 2
    assert (await stand.balanced()).ledger.delivered == 2


async def test_at_maxmemory_append_is_refused_and_the_queue_drains(
    new_server: Callable[..., Server], connected: Callable[[Server | str], Redis]
) -> None:
    server = new_server("valkey")
    stand = Stand(connected(server), cluster=False)
    await stand.begin()
    await stand.append(*(f"k{n}" for n in range(20)))
    server.cli("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(Unavailable, match="oom"):
        await stand.append("new")
    entries = await stand.take("r")
    assert await stand.claim("r", *entries) == [Verdict.DELIVER] * 20
    dying, *rest = entries
    answers = await stand.settle("r", (dying, Dead(Reason.ATTEMPTS)), *((e, Delivered(200)) for e in rest))
    assert answers == [Settled.DONE] * 20
    server.cli("CONFIG", "SET", "maxmemory", 0)
    now = await stand.balanced()
    assert (now.depth, now.ledger.delivered, now.ledger.died) == (0, 19, 1)
    assert (await stand.append("new"))[0].status == "queued"


async def test_batch_that_fails_in_the_middle_can_be_sent_again(
    new_server: Callable[..., Server], connected: Callable[[Server | str], Redis]
) -> None:
    """The server runs out of memory somewhere among a hundred requests; all are sent again afterwards."""
    server = new_server("valkey")
    stand = Stand(connected(server), cluster=False)
    await stand.begin()
    used = int(str(server.cli("INFO", "memory")).split("used_memory:")[1].split("\r")[0])
    server.cli("CONFIG", "SET", "maxmemory", used + 400_000)
    answers = await _one_by_one(stand)
    refused = [answer for answer in answers if isinstance(answer, Unavailable)]
    assert 0 < len(refused) < 100
    server.cli("CONFIG", "SET", "maxmemory", 0)
    again = await _one_by_one(stand)
    statuses = [answer.status if isinstance(answer, Stored) else "refused" for answer in again]
    assert statuses.count("duplicate") == 100 - len(refused)
    assert statuses.count("queued") == len(refused)
    entries = await stand.take("r", 200)
    assert sorted(entry.fields[b"key"].decode() for entry in entries) == sorted(f"k{n}" for n in range(100))
    await stand.balanced()


async def _one_by_one(stand: Stand) -> list[Stored | Unavailable]:
    answers: list[Stored | Unavailable] = []
    for n in range(100):
        try:
            answers += await stand.appender.submit([event(f"k{n}", summary="x" * 8000)])
        except Unavailable as fault:
            answers.append(fault)
    return answers

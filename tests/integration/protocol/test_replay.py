from __future__ import annotations

from common.outcomes import Dead, Delivered, Duplicate, Reason
from common.scripts import Script
from dispatcher.claim import Verdict
from tests.integration.protocol.stand import Stand

_discard = Script("ops", "discard")
_accept = Script("ops", "accept")


async def died(stand: Stand, *keys: str) -> list[str]:
    """Ids of their dead letters."""
    entries = await stand.claimed("a", *keys)
    await stand.settle("a", *((entry, Dead(Reason.ATTEMPTS, 500)) for entry in entries))
    return [entry_id.decode() for entry_id, _ in await stand.redis.xrange(stand.at.dead)]


async def test_replay_moves_the_oldest_with_fresh_counts(stand: Stand) -> None:
    letters = await died(stand, "a", "b", "c")
    assert await stand.replay(most=2) == [2, 0, b""]
    entries = await stand.take("b")
    assert [entry.fields[b"key"] for entry in entries] == [b"a", b"b"]
    assert [entry.fields[b"replay_of"].decode() for entry in entries] == letters[:2]
    assert list(entries[0].fields) == [b"key", b"alert", b"attempt", b"first_at", b"replay_of"]
    assert entries[0].fields[b"attempt"] == b"0"
    assert int(entries[0].fields[b"first_at"]) >= int((await stand.letters())[0]["died_at"])
    now = await stand.balanced()
    assert (now.depth, now.dead_letters, now.ledger.replayed) == (2, 1, 2)
    assert await stand.claim("b", *entries) == [Verdict.DELIVER] * 2


async def test_replay_of_named_letters_each_once(stand: Stand) -> None:
    first, second = await died(stand, "a", "b")
    assert await stand.replay(second, second, "1-1") == [1, 2, b""]
    assert [entry.fields[b"key"] for entry in await stand.take("b")] == [b"b"]
    assert [letter["key"] for letter in await stand.letters()] == ["a"]
    assert await stand.replay(first) == [1, 0, b""]
    await stand.balanced()


async def test_replay_stops_at_the_queues_cap(stand: Stand) -> None:
    await died(stand, "a", "b")
    assert await stand.replay(max_depth=1) == [1, 0, b"full"]
    now = await stand.balanced()
    assert (now.depth, now.dead_letters) == (1, 1)


async def test_replayed_after_another_copy_was_delivered_is_a_duplicate_unless_forced(stand: Stand) -> None:
    await died(stand, "k", "forced")
    for key in ("k", "forced"):
        await stand.redis.delete(stand.at.record(key))
    for entry in await stand.claimed("a", "k", "forced"):
        await stand.settle("a", (entry, Delivered(200)))
    await stand.replay(most=1)
    await stand.replay(force="force")
    plain, forced = await stand.take("b")
    assert forced.fields[b"force"] == b"1"
    assert await stand.claim("b", plain, forced) == [Verdict.DUPLICATE, Verdict.DELIVER]
    await stand.settle("b", (plain, Duplicate()), claimed=False)
    await stand.settle("b", (forced, Delivered(200)))
    ledger = (await stand.balanced()).ledger
    assert (ledger.delivered, ledger.duplicate, ledger.replayed) == (3, 1, 2)


async def test_discard_removes_and_counts_each_once(stand: Stand) -> None:
    first, second = await died(stand, "a", "b")
    touched = [stand.at.dead, stand.at.ledger, stand.at.objects]
    assert (await _discard(stand.redis, touched, [first, first, "1-1"]))[0] == 1
    assert await _discard(stand.redis, touched, [second]) == [1, b"discarded 1 dead letter"]
    now = await stand.balanced()
    assert (now.dead_letters, now.ledger.discarded, now.ledger.died) == (0, 2, 2)


async def test_accept_books_what_is_missing(stand: Stand) -> None:
    [letter] = await died(stand, "k")
    await stand.append("gone")
    record = await stand.record("gone")
    assert record is not None
    await stand.redis.xdel(stand.at.stream, record.entry_id)
    await stand.redis.xdel(stand.at.dead, letter)
    assert (await stand.look()).unaccounted == 2
    touched = [stand.at.stream, stand.at.retry, stand.at.dead, stand.at.ledger]
    assert (await _accept(stand.redis, touched, [5, 0]))[2] == 0  # it is not what was understood
    assert (await _accept(stand.redis, touched, []))[:3] == [1, 1, 1]
    assert (await _accept(stand.redis, touched, []))[:3] == [0, 0, 1]
    ledger = (await stand.balanced()).ledger
    assert (ledger.lost, ledger.discarded) == (1, 1)

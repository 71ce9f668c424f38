from __future__ import annotations

import msgspec
import pytest

from common.alert import Status
from common.keys import GROUP
from common.outcomes import Dead, Delivered, Duplicate, Later, Reason, Settlement, Superseded
from dispatcher.claim import Verdict
from dispatcher.entry import Entry
from dispatcher.settle import Settled
from tests.integration.protocol.stand import Stand

EVERY: list[Settlement] = [
    Delivered(200),
    Superseded(),
    Later(0, spends=True),
    Dead(Reason.ATTEMPTS),
    Duplicate(),
]


async def hand_out(stand: Stand, entry: Entry, consumer: str) -> None:
    """Again, to this consumer."""
    await stand.redis.execute_command("XCLAIM", stand.at.stream, GROUP, consumer, 0, entry.id)


async def test_delivered_ends_it(stand: Stand) -> None:
    [entry] = await stand.claimed("a", "k")
    assert await stand.settle("a", (entry, Delivered(204))) == [Settled.DONE]
    record = await stand.record("k")
    assert record is not None
    assert (record.state, record.attempts, record.status) == ("delivered", 1, 204)
    now = await stand.balanced()
    assert (now.depth, now.in_flight, now.ledger.delivered) == (0, 0, 1)


async def test_delivered_resolution_is_remembered_by_its_latest_time(stand: Stand) -> None:
    for key, at in (("new", 3000), ("old", 2000)):
        await stand.append(key, status=Status.RESOLVED, timestamp=at)
    entries = await stand.take("a")
    await stand.claim("a", *entries)
    await stand.settle("a", *((entry, Delivered(200)) for entry in entries))
    assert await stand.redis.get(stand.at.resolved("db1:disk")) == b"3000"
    assert await stand.redis.pttl(stand.at.resolved("db1:disk")) > 0


@pytest.mark.parametrize("spends", [True, False])
async def test_later_waits_with_its_attempts(stand: Stand, spends: bool) -> None:
    [entry] = await stand.claimed("a", "k")
    settlement = Later(0, spends=spends, status=503, error="busy\nagain")
    assert await stand.settle("a", (entry, settlement)) == [Settled.DONE]
    record = await stand.record("k")
    assert record is not None
    assert (record.state, record.attempts, record.status) == ("retrying", int(spends), 503)
    assert record.error == "busy\nagain"
    now = await stand.balanced()
    assert (now.waiting, now.retrying, now.next_due) == (0, 1, record.next_at)
    [again] = await stand.take("b")
    assert again.fields == {**entry.fields, b"attempt": str(int(spends)).encode()}
    assert list(again.fields) == list(entry.fields)


async def test_what_is_given_up_untried_keeps_what_its_last_attempt_met(stand: Stand) -> None:
    [entry] = await stand.claimed("a", "k")
    await stand.settle("a", (entry, Later(0, spends=True, status=503, error="HTTP 503: busy now")))
    [entry] = await stand.take("a")
    await stand.claim("a", entry)
    await stand.settle("a", (entry, Later(0, spends=False)))  # handed back
    [entry] = await stand.take("b")
    await stand.claim("b", entry)
    await stand.settle("b", (entry, Dead(Reason.MAX_AGE, error="older than 1h")))
    [letter] = await stand.letters()
    told = "older than 1h; at the last attempt: HTTP 503: busy now"
    assert (letter["reason"], letter["status"], letter["attempts"]) == ("max_age", "503", "1")
    assert letter["error"] == told
    record = await stand.record("k")
    assert record is not None
    assert (record.status, record.error, record.attempts) == (503, told, 1)


async def test_later_is_not_taken_before_its_time(stand: Stand) -> None:
    [entry] = await stand.claimed("a", "k")
    await stand.settle("a", (entry, Later(3600, spends=True)))
    taken = await stand.taken("a")
    assert not taken.entries
    assert taken.next_due - taken.now > 3_500_000


async def test_dead_becomes_a_dead_letter(stand: Stand) -> None:
    [entry] = await stand.claimed("a", "k")
    assert await stand.settle("a", (entry, Dead(Reason.REJECTED, 404, "nobody"))) == [Settled.DONE]
    [letter] = await stand.letters()
    first_at, died_at = int(letter.pop("first_at")), int(letter.pop("died_at"))
    assert first_at <= died_at
    assert letter == {
        "key": "k",
        "reason": "rejected",
        "error": "nobody",
        "status": "404",
        "attempts": "1",
        "deliveries": "1",
        "alert": entry.fields[b"alert"].decode(),
    }
    assert await stand.state("k") == "dead"
    assert (await stand.balanced()).ledger.died == 1


async def test_at_the_cap_of_dead_letters_it_waits_with_its_reason_and_is_not_sent_again(
    stand: Stand,
) -> None:
    first, second = await stand.claimed("a", "first", "second")
    stand.limit(max_dead=1)
    batch = [(each, Dead(Reason.ATTEMPTS, 500, "no")) for each in (first, second)]
    assert await stand.settle("a", *batch) == [Settled.DONE, Settled.WAITS]
    assert await stand.state("second") == "retrying"
    assert (await stand.balanced()).dead_letters == 1
    await stand.redis.zadd(stand.at.retry, dict.fromkeys(await stand.redis.zrange(stand.at.retry, 0, -1), 0))
    [waiting] = await stand.take("a")
    told = {name: waiting.fields[name] for name in (b"reason", b"error", b"status")}
    assert told == {b"reason": b"attempts", b"error": b"no", b"status": b"500"}
    assert await stand.claim("a", waiting) == [Verdict.DELIVER]
    # what the lane does with one that has a reason: no attempt, the same end
    assert await stand.settle("a", (waiting, Dead(Reason.ATTEMPTS, 500, "no"))) == [Settled.WAITS]
    stand.limit()
    await stand.redis.zadd(stand.at.retry, dict.fromkeys(await stand.redis.zrange(stand.at.retry, 0, -1), 0))
    [waiting] = await stand.take("a")
    await stand.claim("a", waiting)
    assert await stand.settle("a", (waiting, Dead(Reason.ATTEMPTS, 500, "no"))) == [Settled.DONE]
    letter = (await stand.letters())[1]
    assert (letter["key"], letter["attempts"], letter["status"]) == ("second", "1", "500")
    await stand.balanced()


async def test_malformed_counts_as_accepted_when_it_has_no_key(stand: Stand) -> None:
    await stand.redis.xadd(stand.at.stream, {"what": "ever"})
    await stand.redis.xadd(stand.at.stream, {"key": "k", "alert": "}"})
    await stand.redis.hincrby(stand.at.ledger, "accepted", 1)
    keyless, unreadable = await stand.take("a")
    batch = [(each, Dead(Reason.MALFORMED, error="no")) for each in (keyless, unreadable)]
    assert await stand.settle("a", *batch, claimed=False, readable=False) == [Settled.DONE] * 2
    letters = await stand.letters()
    assert [(letter["key"], letter["reason"]) for letter in letters] == [
        ("", "malformed"),
        ("k", "malformed"),
    ]
    assert msgspec.json.decode(letters[0]["alert"]) == {"what": "ever"}
    assert letters[1]["alert"] == "}"
    assert (await stand.balanced()).ledger.accepted == 2


async def test_duplicate_ends_the_copy_and_leaves_the_record_alone(stand: Stand) -> None:
    [first] = await stand.claimed("a", "k")
    await stand.redis.xadd(stand.at.stream, first.fields)
    await stand.redis.hincrby(stand.at.ledger, "accepted", 1)
    await stand.settle("a", (first, Delivered(200)))
    before = await stand.redis.get(stand.at.record("k"))
    [second] = await stand.take("a")
    assert await stand.settle("a", (second, Duplicate()), claimed=False) == [Settled.DONE]
    assert await stand.redis.get(stand.at.record("k")) == before
    assert (await stand.balanced()).ledger.duplicate == 1


async def test_hand_back_of_an_unclaimed_entry_is_taken_at_once(stand: Stand) -> None:
    await stand.append("k")
    [entry] = await stand.take("a")
    assert await stand.settle("a", (entry, Later(0, spends=False)), claimed=False) == [Settled.DONE]
    [again] = await stand.take("b")
    assert again.fields == entry.fields
    assert await stand.claim("b", again) == [Verdict.DELIVER]


@pytest.mark.parametrize("settlement", EVERY, ids=lambda settlement: type(settlement).__name__)
async def test_a_second_settlement_changes_nothing(stand: Stand, settlement: Settlement) -> None:
    [entry] = await stand.claimed("a", "k")
    claimed = not isinstance(settlement, Duplicate)
    assert await stand.settle("a", (entry, settlement), claimed=claimed) == [Settled.DONE]
    before = await stand.look(), await stand.redis.get(stand.at.record("k"))
    assert await stand.settle("a", (entry, settlement), claimed=claimed) == [Settled.FENCED]
    after = await stand.balanced(), await stand.redis.get(stand.at.record("k"))
    assert (after[0].ledger, after[0].depth, after[1]) == (before[0].ledger, before[0].depth, before[1])


@pytest.mark.parametrize("settlement", EVERY, ids=lambda settlement: type(settlement).__name__)
@pytest.mark.parametrize("to", ["a", "b"])
async def test_handed_out_again_is_fenced_but_for_a_success(
    stand: Stand, settlement: Settlement, to: str
) -> None:
    [entry] = await stand.claimed("a", "k")
    await hand_out(stand, entry, to)
    claimed = not isinstance(settlement, Duplicate)
    holds = isinstance(settlement, Delivered) or (not claimed and to == "a")
    [answer] = await stand.settle("a", (entry, settlement), claimed=claimed)
    assert answer is (Settled.DONE if holds else Settled.FENCED)
    assert await stand.state("k") == ("delivered" if isinstance(settlement, Delivered) else "in_flight")
    await stand.balanced()


async def test_success_of_the_earlier_owner_counts_and_the_later_one_is_fenced(stand: Stand) -> None:
    [entry] = await stand.claimed("a", "k")
    await hand_out(stand, entry, "b")
    again = Entry(entry.id, entry.fields, 2)
    assert await stand.claim("b", again) == [Verdict.DELIVER]
    assert await stand.settle("a", (entry, Delivered(200))) == [Settled.DONE]
    assert await stand.settle("b", (again, Delivered(200))) == [Settled.FENCED]
    assert await stand.settle("b", (again, Later(0, spends=True))) == [Settled.FENCED]
    assert (await stand.balanced()).ledger.delivered == 1


async def test_success_without_a_pending_entry_changes_nothing(stand: Stand) -> None:
    [entry] = await stand.claimed("a", "k")
    await stand.redis.xgroup_delconsumer(stand.at.stream, GROUP, "a")
    assert await stand.settle("a", (entry, Delivered(200))) == [Settled.FENCED]
    assert await stand.state("k") == "in_flight"
    assert (await stand.balanced()).depth == 1


async def test_batch_of_every_kind_answers_in_order(stand: Stand) -> None:
    keys = [f"k{n}" for n in range(8)]
    entries = await stand.claimed("a", *keys)
    settlements: list[Settlement] = [
        *(Later(0, spends=True), Delivered(200), Dead(Reason.ATTEMPTS), Delivered(200)),
        *(Superseded(), Later(5, spends=False), Delivered(200), Dead(Reason.MAX_AGE)),
    ]
    await hand_out(stand, entries[2], "b")
    answers = await stand.settle("a", *zip(entries, settlements, strict=True))
    assert answers == [Settled.FENCED if n == 2 else Settled.DONE for n in range(8)]
    states = [await stand.state(key) for key in keys]
    assert states == [
        *("retrying", "delivered", "in_flight", "delivered"),
        *("delivered", "retrying", "delivered", "dead"),
    ]
    now = await stand.balanced()
    assert (now.ledger.delivered, now.ledger.superseded, now.ledger.died, now.depth) == (3, 1, 1, 3)


async def test_vanished_entry_in_hand_still_counts(stand: Stand) -> None:
    good, bad = await stand.claimed("a", "good", "bad")
    await stand.redis.xdel(stand.at.stream, good.id, bad.id)
    answers = await stand.settle("a", (good, Delivered(200)), (bad, Later(0, spends=True)))
    assert answers == [Settled.DONE] * 2
    now = await stand.balanced()
    assert (now.depth, now.ledger.delivered, now.ledger.lost) == (1, 1, 0)

from __future__ import annotations

import pytest

from common.alert import Status
from common.keys import GROUP
from common.outcomes import Dead, Delivered, Later, Reason, Superseded
from dispatcher.claim import Verdict
from dispatcher.reclaim import find
from dispatcher.settle import Settled
from tests.integration.protocol.stand import Stand


async def reclaimed(stand: Stand, entry_id: str, consumer: str) -> None:
    """Hand it to somebody else, who forgets it."""
    await stand.redis.execute_command("XCLAIM", stand.at.stream, GROUP, consumer, 0, entry_id)


async def copy(stand: Stand, key: str) -> None:
    """A second entry of the key."""
    [(_, fields)] = await stand.redis.xrange(stand.at.stream, count=1)
    await stand.redis.xadd(stand.at.stream, {**fields, b"key": key.encode()})
    await stand.redis.hincrby(stand.at.ledger, "accepted", 1)


async def test_first_claim_makes_the_record_mine(stand: Stand) -> None:
    await stand.append("k")
    before = await stand.record("k")
    [entry] = await stand.take("a")
    assert await stand.claim("a", entry) == [Verdict.DELIVER]
    record = await stand.record("k")
    assert record is not None
    assert before is not None
    assert (record.state, record.entry_id, record.deliveries, record.consumer) == (
        "in_flight",
        entry.id,
        1,
        "a",
    )
    assert record.content == before.content
    assert await stand.redis.pttl(stand.at.record("k")) > 3_500_000


async def test_claim_repeated_after_a_lost_answer_is_the_same(stand: Stand) -> None:
    [entry] = await stand.claimed("a", "k")
    assert await stand.claim("a", entry) == [Verdict.DELIVER]


async def test_forgotten_record_is_made_again(stand: Stand) -> None:
    await stand.append("k")
    await stand.redis.delete(stand.at.record("k"))
    [entry] = await stand.take("a")
    assert await stand.claim("a", entry) == [Verdict.DELIVER]
    assert await stand.state("k") == "in_flight"


async def test_not_mine_without_being_pending_under_me_with_this_count(stand: Stand) -> None:
    await stand.append("taken", "counted", "nobodys")
    taken, counted, nobodys = await stand.take("a")
    await reclaimed(stand, taken.id, "b")
    await reclaimed(stand, counted.id, "a")  # its count is 2 by now
    await stand.redis.xack(stand.at.stream, GROUP, nobodys.id)
    assert await stand.claim("a", taken, counted, nobodys) == [Verdict.NOT_MINE] * 3
    assert [await stand.state(key) for key in ("taken", "counted", "nobodys")] == ["queued"] * 3


async def test_just_read_and_waiting_is_mine_without_a_look(stand: Stand) -> None:
    await stand.append("k")
    [entry] = await stand.take("a")
    await stand.redis.xack(
        stand.at.stream, GROUP, entry.id
    )  # by hand; nobody else takes away what is just read
    late = True
    while late:  # the time is short, and on a busy machine it may be over before the call
        just_read = await stand.just_read()
        verdicts = await stand.claim("a", entry, just_read=just_read)
        late = verdicts != [Verdict.DELIVER] and (await stand.look()).now >= just_read.until
    assert verdicts == [Verdict.DELIVER]
    assert await stand.state("k") == "in_flight"


@pytest.mark.parametrize("ms", [-1, 3_600_000], ids=["too long ago", "the clock was set back"])
async def test_not_just_read_by_the_servers_clock(stand: Stand, ms: int) -> None:
    await stand.append("k")
    [entry] = await stand.take("a")
    await reclaimed(stand, entry.id, "b")
    assert await stand.claim("a", entry, just_read=await stand.just_read(ms)) == [Verdict.NOT_MINE]
    assert await stand.state("k") == "queued"


async def test_just_read_from_a_server_that_was_connected_to_since_then(stand: Stand) -> None:
    await stand.append("k")
    [entry] = await stand.take("a")
    just_read = await stand.just_read()
    await stand.wire.close()
    await reclaimed(stand, entry.id, "b")
    assert await stand.claim("a", entry, just_read=just_read) == [Verdict.NOT_MINE]


async def test_just_read_and_claimed_by_another_meanwhile(stand: Stand) -> None:
    await stand.append("k")
    [entry] = await stand.take("a")
    just_read = await stand.just_read()
    await stand.redis.xgroup_delconsumer(stand.at.stream, GROUP, "a")  # by hand
    _, [found] = await find(stand.redis, stand.at, "b", most=10, start="-")
    assert await stand.claim("b", found) == [Verdict.DELIVER]
    assert await stand.claim("a", entry, just_read=just_read) == [Verdict.NOT_MINE]
    record = await stand.record("k")
    assert record is not None
    assert record.consumer == "b"


async def test_two_copies_just_read_together_are_one_delivery(stand: Stand) -> None:
    await stand.append("k")
    await copy(stand, "k")
    entries = await stand.take("a")
    just_read = await stand.just_read()
    assert await stand.claim("a", *entries, just_read=just_read) == [Verdict.DELIVER, Verdict.LOOK_AGAIN]


async def test_copy_of_one_in_flight_is_to_look_again_and_leaves_the_record_alone(stand: Stand) -> None:
    await stand.claimed("a", "k")
    await copy(stand, "k")
    before = await stand.redis.get(stand.at.record("k"))
    [second] = await stand.take("b")
    assert await stand.claim("b", second) == [Verdict.LOOK_AGAIN]
    assert await stand.redis.get(stand.at.record("k")) == before
    assert await stand.settle("b", (second, Later(0, spends=False)), claimed=False) == [Settled.DONE]
    assert await stand.redis.get(stand.at.record("k")) == before
    assert (await stand.balanced()).retrying == 1


async def test_two_copies_taken_together_are_one_delivery(stand: Stand) -> None:
    await stand.append("k")
    await copy(stand, "k")
    assert await stand.claim("a", *await stand.take("a")) == [Verdict.DELIVER, Verdict.LOOK_AGAIN]


async def test_copy_takes_over_from_one_that_is_not_pending_any_more(stand: Stand) -> None:
    [first] = await stand.claimed("a", "k")
    await copy(stand, "k")
    [second] = await stand.take("b")
    await stand.redis.xack(stand.at.stream, GROUP, first.id)
    assert await stand.claim("b", second) == [Verdict.DELIVER]


async def test_copy_of_one_delivered_is_a_duplicate_unless_forced(stand: Stand) -> None:
    [first] = await stand.claimed("a", "k")
    await copy(stand, "k")
    await stand.settle("a", (first, Delivered(200)))
    [second] = await stand.take("b")
    assert await stand.claim("b", second) == [Verdict.DUPLICATE]
    assert await stand.state("k") == "delivered"
    await stand.redis.xadd(stand.at.stream, {**second.fields, b"force": b"1"})
    [forced] = await stand.take("b")
    assert await stand.claim("b", forced) == [Verdict.DELIVER]
    assert await stand.state("k") == "in_flight"


async def test_retried_and_replayed_are_delivered(stand: Stand) -> None:
    later, dead = await stand.claimed("a", "later", "dead")
    await stand.settle("a", (later, Later(0, spends=True)), (dead, Dead(Reason.ATTEMPTS, 500, "no")))
    await stand.replay()
    entries = await stand.take("b")
    assert await stand.claim("b", *entries) == [Verdict.DELIVER] * 2
    record = await stand.record("dead")
    assert record is not None
    assert (record.status, record.error) == (500, "no")  # of the last attempt, until there is a new one


async def test_firing_not_later_than_a_delivered_resolution_is_superseded(stand: Stand) -> None:
    times = {"before": 1000, "same": 2000, "after": 2001}
    for key, at in times.items():
        await stand.append(key, timestamp=at)
    await stand.append("over", status=Status.RESOLVED, timestamp=2000)
    *firings, over = await stand.take("a")
    await stand.claim("a", over)
    await stand.settle("a", (over, Delivered(200)))
    verdicts = await stand.claim("a", *firings)
    assert verdicts == [Verdict.SUPERSEDED, Verdict.SUPERSEDED, Verdict.DELIVER]
    assert await stand.settle("a", (firings[0], Superseded())) == [Settled.DONE]
    assert await stand.state("before") == "delivered"
    assert (await stand.balanced()).ledger.superseded == 1

from __future__ import annotations

from typing import Any

import pytest

from common.keys import GROUP
from common.outcomes import Delivered, Duplicate, Later, Settlement
from dispatcher.claim import Verdict
from dispatcher.entry import Entry
from dispatcher.keep_alive import keep_alive
from dispatcher.reclaim import Reclaimed, find, reap, reclaim
from dispatcher.settle import Settled
from dispatcher.take import make_group
from tests.integration.protocol.stand import Stand, ids

AGES = 3_600_000  # ms


async def again(stand: Stand, consumer: str, **how: Any) -> Reclaimed:
    """A round of reclaiming, of everything unless told otherwise."""
    given: dict[str, Any] = {"idle": 0, "most": 100, "start": "-", "in_work": []}
    return await reclaim(stand.redis, stand.at, consumer, **given | how)


async def age(stand: Stand, *entries: Entry) -> None:
    """As if nobody had touched them for hours; counts stay."""
    for entry in entries:
        owner = (await stand.redis.xpending_range(stand.at.stream, GROUP, entry.id, entry.id, 1))[0]
        await stand.redis.xclaim(
            stand.at.stream, GROUP, owner["consumer"], 0, [entry.id], idle=AGES, justid=True
        )


async def pending(stand: Stand) -> dict[str, tuple[str, int]]:
    """Consumer and count by id."""
    found = await stand.redis.xpending_range(stand.at.stream, GROUP, "-", "+", 100)
    return {p["message_id"].decode(): (p["consumer"].decode(), p["times_delivered"]) for p in found}


async def test_only_what_is_idle_is_taken_and_counted(stand: Stand) -> None:
    await stand.append("old", "fresh")
    old, fresh = await stand.take("a")
    await age(stand, old)
    found = await again(stand, "b", idle=AGES // 2)
    assert (ids(found.entries), found.entries[0].deliveries) == ([old.id], 2)
    assert found.entries[0].fields == old.fields
    assert (found.following, found.suspect, found.lost, found.gate) == ("-", "", 0, "")
    assert await pending(stand) == {old.id: ("b", 2), fresh.id: ("a", 1)}


async def test_ones_own_lost_answers_too_but_not_what_is_in_work(stand: Stand) -> None:
    await stand.append("lost", "work")
    lost, work = await stand.take("a")
    found = await again(stand, "a", in_work=[work.id])
    assert ids(found.entries) == [lost.id]
    assert await stand.claim("a", *found.entries) == [Verdict.DELIVER]


async def test_keep_alive_refreshes_without_counting(stand: Stand) -> None:
    await stand.append("k")
    [entry] = await stand.take("a")
    await age(stand, entry)
    assert await keep_alive(stand.redis, stand.at, "a", [entry.id]) == ([], [])
    assert (await again(stand, "b", idle=AGES // 2)).entries == []
    assert await pending(stand) == {entry.id: ("a", 1)}


async def test_keep_alive_tells_what_is_gone_and_what_has_vanished(stand: Stand) -> None:
    await stand.append("taken", "vanished", "settled")
    taken, vanished, settled = await stand.take("a")
    await again(stand, "b", most=1)
    await stand.redis.xdel(stand.at.stream, vanished.id)
    await stand.settle("a", (settled, Later(0, spends=False)), claimed=False)
    told = await keep_alive(stand.redis, stand.at, "a", [taken.id, vanished.id, settled.id])
    assert told == ([taken.id, settled.id], [vanished.id])
    assert (await pending(stand))[taken.id] == ("b", 2)


async def test_a_suspect_is_named_and_taken_only_alone(stand: Stand) -> None:
    await stand.append("pill", "innocent")
    pill, innocent = await stand.take("a")
    await stand.redis.execute_command("XCLAIM", stand.at.stream, GROUP, "b", 0, pill.id)
    found = await again(stand, "c")
    assert (ids(found.entries), found.suspect) == ([innocent.id], pill.id)
    assert (await pending(stand))[pill.id] == ("b", 2)
    alone = await again(stand, "c", alone=pill.id)
    assert [(entry.id, entry.deliveries) for entry in alone.entries] == [(pill.id, 3)]


async def test_rounds_go_on_where_the_last_one_ended(stand: Stand) -> None:
    await stand.append(*(f"k{n}" for n in range(7)))
    taken = await stand.take("a")
    seen: list[str] = []
    start, rounds = "-", 0
    while rounds == 0 or start != "-":
        found = await again(stand, "b", most=3, start=start)
        seen += ids(found.entries)
        start, rounds = found.following, rounds + 1
    assert (seen, rounds) == (ids(taken), 3)


async def test_vanished_entries_are_let_go_and_booked_as_lost_once(stand: Stand) -> None:
    await stand.append("a", "b")
    entries = await stand.take("a")
    await stand.redis.xdel(stand.at.stream, *ids(entries))
    await stand.append("a")  # books its own as lost and takes its place
    assert (await stand.look()).ledger.lost == 1
    assert (await again(stand, "b")).lost == 2
    now = await stand.balanced()
    assert (now.ledger.lost, now.depth, now.in_flight) == (2, 1, 0)


@pytest.mark.parametrize(
    "settlement",
    [Later(0, spends=False), Duplicate(), Delivered(200)],
    ids=["later", "duplicate", "delivered"],
)
async def test_vanished_booked_as_lost_and_settled_after_all_keeps_the_ledger_exact(
    stand: Stand, settlement: Settlement
) -> None:
    """The repeat books it as lost; then the replica that has it in hand settles it all the same."""
    await stand.append("k")
    [entry] = await stand.take("a")
    await stand.redis.xdel(stand.at.stream, entry.id)
    await stand.append("k")
    claimed = isinstance(settlement, Delivered)
    if claimed:
        assert await stand.claim("a", entry) == [Verdict.DELIVER]
    assert await stand.settle("a", (entry, settlement), claimed=claimed) == [Settled.DONE]
    await stand.balanced()


async def test_a_closed_gate_is_told(stand: Stand) -> None:
    await stand.append("k")
    await stand.take("a")
    await stand.redis.hset(stand.at.gate, "state", "paused")
    found = await again(stand, "b")
    assert (found.gate, len(found.entries)) == ("paused", 1)
    assert await stand.settle("b", (found.entries[0], Later(0, spends=False)), claimed=False) == [
        Settled.DONE
    ]
    assert (await stand.balanced()).retrying == 1


async def test_find_takes_what_nobody_owns_and_leaves_what_is_unread(stand: Stand) -> None:
    await stand.append("orphan", "owned", "unread")
    [orphan] = await stand.take("a", 1)
    [owned] = await stand.take("b", 1)
    await stand.redis.xgroup_delconsumer(stand.at.stream, GROUP, "a")
    following, entries = await find(stand.redis, stand.at, "c", most=100, start="-")
    assert (following, ids(entries)) == ("-", [orphan.id])
    assert await pending(stand) == {orphan.id: ("c", 2), owned.id: ("b", 1)}
    assert await stand.claim("c", *entries) == [Verdict.DELIVER]


async def test_find_gives_back_what_is_in_work_here_as_it_was(stand: Stand) -> None:
    await stand.append("k")
    await stand.take("a")
    [entry] = (await again(stand, "b")).entries
    await stand.claim("b", entry)
    await stand.redis.xgroup_delconsumer(stand.at.stream, GROUP, "b")
    found = await find(stand.redis, stand.at, "b", most=100, start="-", in_work=[entry])
    assert found == ("-", [])
    assert await pending(stand) == {entry.id: ("b", 2)}
    assert await stand.settle("b", (entry, Later(0, spends=True))) == [Settled.DONE]


async def test_find_goes_on_where_it_ended(stand: Stand) -> None:
    await stand.append(*(f"k{n}" for n in range(5)))
    taken = await stand.take("a")
    await stand.redis.xgroup_delconsumer(stand.at.stream, GROUP, "a")
    start, seen = "-", []
    for _ in range(3):
        start, entries = await find(stand.redis, stand.at, "b", most=2, start=start)
        seen += ids(entries)
    assert (start, seen) == ("-", ids(taken))


async def test_reap_removes_the_silent_that_own_nothing(stand: Stand) -> None:
    await stand.append("a", "b")
    await stand.take("owner", 1)
    for entry in await stand.take("idle"):
        await stand.settle("idle", (entry, Later(AGES, spends=False)), claimed=False)
    assert await reap(stand.redis, stand.at, silence=AGES) == []
    assert await reap(stand.redis, stand.at, silence=0, only="owner") == []
    assert await reap(stand.redis, stand.at, silence=0) == ["idle"]
    assert (await stand.look()).consumers == 1


async def test_group_made_again_hands_everything_out_again(stand: Stand) -> None:
    sent, unread = await stand.claimed("a", "sent"), await stand.append("unread")
    await stand.redis.xgroup_destroy(stand.at.stream, GROUP)
    assert await make_group(stand.redis, stand.at)
    assert not await make_group(stand.redis, stand.at)
    entries = await stand.take("b")
    assert [entry.fields[b"key"].decode() for entry in entries] == ["sent", unread[0].key]
    assert await stand.claim("b", *entries) == [Verdict.DELIVER] * 2
    assert await stand.settle("a", (sent[0], Later(0, spends=True))) == [Settled.FENCED]
    await stand.balanced()

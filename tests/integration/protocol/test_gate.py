"""One gate for the whole fleet: what closes it, who probes, how it opens, and the rate that all share."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from common.outcomes import Dead, Delivered, Duplicate, Later, OutcomeKind, Reason, Settlement
from dispatcher.claim import Verdict
from dispatcher.entry import Entry, read
from dispatcher.reclaim import reclaim
from dispatcher.settle import Settled
from dispatcher.settling import Attempt, Settling
from tests.integration.protocol.stand import Stand, ids
from tests.support.ramp import KEPT, allowed_after

FAILED = Later(0, spends=True, status=500, error="HTTP 500")
CLOSED = ("throttled", "breaker", "paused", "gone")  # rising


def item(entry: Entry, kind: OutcomeKind, settlement: Settlement, **more: Any) -> Settling:
    """An attempt's settlement; `closes` and `throttles` go into the attempt, `probe` beside it."""
    attempt = Attempt(kind, 0.1, more.pop("throttles", 0), more.pop("closes", 0.0))
    return Settling(entry, read(entry), settlement, True, attempt, **more)


def failed(entry: Entry, **more: Any) -> Settling:
    return item(entry, OutcomeKind.FAILED, FAILED, **more)


def delivered(entry: Entry, **more: Any) -> Settling:
    return item(entry, OutcomeKind.DELIVERED, Delivered(200), **more)


def gone(entry: Entry, settlement: Settlement | None = None) -> Settling:
    told = settlement or Later(60, spends=True, status=410, error="HTTP 410")
    return item(entry, OutcomeKind.GONE, told)


def throttled(entry: Entry, seconds: float, **more: Any) -> Settling:
    told = Later(seconds, spends=False, status=429, error="HTTP 429")
    return item(entry, OutcomeKind.THROTTLED, told, closes=seconds, throttles=entry.throttles + 1, **more)


async def in_flight(stand: Stand, consumer: str, *keys: str) -> list[Entry]:
    """Appended, and claimed although the gate may be closed: they were sent before it was."""
    gate = await stand.gate()
    await stand.redis.delete(stand.at.gate)
    entries = await stand.claimed(consumer, *keys)
    if gate:
        await stand.redis.hset(stand.at.gate, mapping=gate)
    return entries


async def shut(stand: Stand, state: str = "breaker", *, over: bool = False, **fields: str) -> None:
    """A closed gate; `over`: its time has passed."""
    now = (await stand.look()).now
    await stand.redis.delete(stand.at.gate)
    until = {} if state in ("gone", "paused") else {"until": now - 1 if over else now + 60_000}
    await stand.redis.hset(
        stand.at.gate, mapping={"state": state, "reason": "before", "opened_at": 7, **until, **fields}
    )


# What closes it


async def test_successes_leave_nothing(stand: Stand) -> None:
    [entry] = await stand.claimed("a", "k")
    await stand.tell("a", delivered(entry))
    assert await stand.gate() == {}


async def test_failures_in_a_row_close_it_whichever_replica_saw_them(stand: Stand) -> None:
    entries = await stand.claimed("a", *"abcde")
    others = await stand.claimed("b", *"fg")
    await stand.tell("a", *(failed(each) for each in entries[:4]))
    assert await stand.gate() == {"failures": "4"}
    before = (await stand.look()).now
    await stand.tell("b", failed(others[0]))
    gate = await stand.gate()
    assert (gate["state"], gate["reason"], gate["failures"]) == ("breaker", "HTTP 500", "5")
    assert 30_000 <= int(gate["until"]) - before < 40_000
    assert int(gate["until"]) - int(gate["opened_at"]) == 30_000
    await stand.tell("a", failed(entries[4]))  # sent before it was closed
    assert await stand.gate() == gate
    await stand.balanced()


async def test_a_success_between_begins_anew(stand: Stand) -> None:
    entries = await stand.claimed("a", *"abcdefgh")
    await stand.tell("a", *(failed(each) for each in entries[:4]))
    await stand.tell("a", failed(entries[4]), delivered(entries[5]), failed(entries[6]))
    assert await stand.gate() == {"failures": "1"}
    await stand.tell("a", delivered(entries[7]))
    assert await stand.gate() == {}


async def test_rejections_are_neutral(stand: Stand) -> None:
    one, two, three = await stand.claimed("a", *"abc")
    await stand.tell("a", failed(one))
    await stand.tell("a", item(two, OutcomeKind.REJECTED, Dead(Reason.REJECTED, 422)))
    await stand.tell("a", failed(three))
    assert await stand.gate() == {"failures": "2"}


async def test_three_different_deliveries_close_it_for_good(stand: Stand) -> None:
    one, two, three, four = await stand.claimed("a", *"abcd")
    assert await stand.tell("a", gone(one)) == [Settled.DONE]
    assert await stand.tell("a", gone(two)) == [Settled.DONE]
    assert "state" not in await stand.gate()
    assert await stand.tell("a", gone(three)) == [Settled.SPARED]
    gate = await stand.gate()
    assert (gate["state"], gate["reason"], gate.get("until")) == ("gone", "HTTP 410", None)
    # One that was under way, and whose last attempt it would have been.
    assert await stand.tell("a", gone(four, Dead(Reason.REJECTED, 410, "HTTP 410"))) == [Settled.SPARED]
    attempts = {key: await stand.record(key) for key in "abcd"}
    assert {key: r and r.attempts for key, r in attempts.items()} == {"a": 1, "b": 1, "c": 0, "d": 0}
    assert not (await stand.carefully("b")).entries
    assert (await stand.balanced()).dead_letters == 0
    await stand.redis.delete(stand.at.gate)
    again = await stand.take("b")
    assert {e.fields[b"key"]: e.attempts for e in again} == {b"c": 0, b"d": 0}  # the others wait a minute
    assert list(again[0].fields) == list(three.fields)


async def test_one_alone_dies_and_does_not_close_it(stand: Stand) -> None:
    [entry] = await stand.claimed("a", "a")
    for _ in range(4):
        assert await stand.tell("a", gone(entry, Later(0, spends=True, status=404))) == [Settled.DONE]
        [entry] = await stand.take("a")
        assert await stand.claim("a", entry) == [Verdict.DELIVER]
    assert await stand.tell("a", gone(entry, Dead(Reason.REJECTED, 404))) == [Settled.DONE]
    assert await stand.gate() == {"gone_1": "a"}
    [letter] = await stand.letters()
    assert (letter["reason"], letter["attempts"]) == ("rejected", "5")


async def test_a_success_between_three_keeps_it_open(stand: Stand) -> None:
    one, two, three, four = await stand.claimed("a", *"abcd")
    await stand.tell("a", gone(one), gone(two))
    await stand.tell("a", delivered(three))
    await stand.tell("a", gone(four))
    assert await stand.gate() == {"gone_1": "d"}


async def test_retry_after_closes_it_for_so_long(stand: Stand) -> None:
    one, two, three = await stand.claimed("a", *"abc")
    before = (await stand.look()).now
    await stand.tell("a", throttled(one, 20.0), throttled(two, 10.0))
    gate = await stand.gate()
    assert (gate["state"], gate["reason"]) == ("throttled", "HTTP 429")
    assert 20_000 <= int(gate["until"]) - before < 30_000
    await stand.tell("a", throttled(three, 5.0))
    assert (await stand.gate())["until"] == gate["until"]
    record = await stand.record("a")
    assert record is not None
    assert (record.state, record.attempts) == ("retrying", 0)


async def test_refusals_in_a_row_are_counted_in_the_entry(stand: Stand) -> None:
    [entry] = await stand.claimed("a", "k")
    await stand.tell("a", throttled(entry, 1.0))
    await stand.redis.delete(stand.at.gate)
    await stand.redis.zadd(stand.at.retry, dict.fromkeys(await stand.redis.zrange(stand.at.retry, 0, -1), 0))
    [entry] = await stand.take("a")
    assert (entry.throttles, entry.attempts) == (1, 0)
    await stand.settle("a", (entry, Later(0, spends=False)), claimed=False)  # a hand-back says nothing
    [entry] = await stand.take("a")
    assert entry.throttles == 1
    assert await stand.claim("a", entry) == [Verdict.DELIVER]
    await stand.tell("a", failed(entry))
    [entry] = await stand.take("a")
    assert (entry.throttles, entry.attempts) == (0, 1)


@pytest.mark.parametrize("before", CLOSED)
@pytest.mark.parametrize("then", ["throttled", "breaker", "gone"])
async def test_what_ranks_lower_replaces_nothing(stand: Stand, before: str, then: str) -> None:
    await shut(stand, before)
    was = await stand.gate()
    entries = await in_flight(stand, "a", *"abcde")
    told = {
        "throttled": [throttled(each, 5.0) for each in entries],
        "breaker": [failed(each) for each in entries],
        "gone": [gone(each) for each in entries],
    }
    await stand.tell("a", *told[then])
    now = await stand.gate()
    if CLOSED.index(then) > CLOSED.index(before):
        assert now["state"] == then
        assert int(now.get("until", was.get("until", 0))) >= int(was.get("until", 0))
        assert now["opened_at"] == "7"
    else:
        assert now["state"] == before
        assert now.get("until") == was.get("until")
    assert not (await stand.carefully("a")).entries


async def test_a_late_success_does_not_open_it(stand: Stand) -> None:
    await shut(stand, failures="5")
    [entry] = await in_flight(stand, "a", "k")
    await stand.tell("a", delivered(entry))
    gate = await stand.gate()
    assert (gate["state"], gate.get("failures")) == ("breaker", None)


# The fast way


@pytest.mark.parametrize("state", CLOSED)
async def test_the_fast_way_moves_nothing_behind_a_closed_gate(stand: Stand, state: str) -> None:
    [entry] = await stand.claimed("a", "k")
    await stand.settle("a", (entry, Later(0, spends=True)))
    await shut(stand, state)
    taken = await stand.taken("a")
    assert (taken.gate, taken.reason, taken.entries) == (state, "before", [])
    assert (await stand.look()).retrying == 1


async def test_what_the_fast_way_has_read_is_told_to_be_handed_back(stand: Stand) -> None:
    await stand.append("k")
    await stand.redis.hset(stand.at.gate, "ramp", (await stand.look()).now)
    taken = await stand.taken("a")
    assert (taken.gate, taken.ramp, taken.wait, len(taken.entries)) == ("", True, 0, 1)
    await stand.settle("a", (taken.entries[0], Later(0, spends=False)), claimed=False)
    record = await stand.record("k")
    assert record is not None
    assert record.attempts == 0


async def test_a_ramp_ends_by_itself(stand: Stand) -> None:
    await stand.append("k")
    await stand.redis.hset(stand.at.gate, "ramp", (await stand.look()).now - 23_000)
    assert not (await stand.taken("a")).ramp
    assert await stand.gate() == {}


# The probe


async def test_there_is_one_probe_among_three(stand: Stand) -> None:
    await stand.append(*"abcdef")
    await shut(stand, over=True)
    taken = await asyncio.gather(*(stand.carefully(name) for name in "xyz"))
    assert sorted(len(each.entries) for each in taken) == [0, 0, 1]
    assert [each.probe for each in taken if each.entries] == [True]
    assert all(each.gate == "breaker" for each in taken)
    assert all(each.wait > 0 for each in taken)


async def test_before_its_time_there_is_none(stand: Stand) -> None:
    await stand.append("k")
    await shut(stand)
    taken = await stand.carefully("x")
    assert not taken.entries
    assert 0 < taken.wait <= 1000


async def probe(stand: Stand, consumer: str = "x", state: str = "breaker") -> Entry:
    """Taken and claimed."""
    await shut(stand, state, over=True, failures="5")
    taken = await stand.carefully(consumer)
    assert taken.probe
    await stand.claim(consumer, *taken.entries)
    return taken.entries[0]


@pytest.mark.parametrize("state", ["breaker", "throttled"])
async def test_a_probe_that_arrives_opens_it_and_begins_a_ramp(stand: Stand, state: str) -> None:
    await stand.append(*"abc")
    entry = await probe(stand, state=state)
    await stand.tell("x", delivered(entry, probe=True))
    gate = await stand.gate()
    assert set(gate) == {"ramp"}
    taken = await stand.carefully("y")
    assert (taken.gate, taken.ramp) == ("", True)
    assert len(taken.entries) <= allowed_after((taken.now - int(gate["ramp"])) / 1000)  # none at first
    assert 0 < taken.wait <= 1000


async def test_a_probe_that_is_rejected_finds_it_there(stand: Stand) -> None:
    await stand.append("a")
    entry = await probe(stand)
    await stand.tell("x", item(entry, OutcomeKind.REJECTED, Dead(Reason.REJECTED, 422), probe=True))
    assert set(await stand.gate()) == {"ramp"}


async def test_a_probe_that_fails_closes_it_again(stand: Stand) -> None:
    await stand.append(*"abc")
    entry = await probe(stand, state="throttled")
    before = (await stand.look()).now
    await stand.tell("x", failed(entry, probe=True))
    gate = await stand.gate()
    assert (gate["state"], gate["reason"], gate["opened_at"]) == ("breaker", "HTTP 500", "7")
    assert 30_000 <= int(gate["until"]) - before < 40_000
    assert "prober" not in gate
    assert not (await stand.carefully("y")).entries


async def test_a_probe_that_is_throttled_waits_for_what_it_is_told(stand: Stand) -> None:
    await stand.append(*"abc")
    entry = await probe(stand)
    before = (await stand.look()).now
    await stand.tell("x", throttled(entry, 100.0, probe=True))
    gate = await stand.gate()
    assert gate["state"] == "throttled"
    assert 100_000 <= int(gate["until"]) - before < 110_000


async def test_a_probe_that_made_no_request_lets_another_try(stand: Stand) -> None:
    await stand.append(*"abc")
    entry = await probe(stand)
    assert not (await stand.carefully("y")).entries
    back = Settling(entry, read(entry), Later(0, spends=False), True, None, True)
    assert await stand.tell("x", back) == [Settled.DONE]
    assert "prober" not in await stand.gate()
    assert (await stand.carefully("y")).probe


async def test_a_probe_without_anything_to_settle_is_given_back(stand: Stand) -> None:
    await stand.append(*"abc")
    await probe(stand)
    assert await stand.tell("x", lease_back=True) == []
    assert (await stand.carefully("y")).probe


async def test_where_nothing_waits_nobody_holds_the_probe(stand: Stand) -> None:
    await shut(stand, over=True)
    taken = await stand.carefully("x")
    assert (taken.probe, taken.wait, "prober" in await stand.gate()) == (False, -1, False)
    await stand.append("k")
    assert (await stand.carefully("y")).probe


async def test_the_probe_of_a_replica_that_died_is_made_by_another(stand: Stand) -> None:
    await stand.append(*"abc")
    await probe(stand, "dead")
    await stand.redis.hset(stand.at.gate, "lease", (await stand.look()).now - 1)
    taken = await stand.carefully("y")
    assert taken.probe
    assert (await stand.gate())["prober"] == "y"


async def test_only_who_holds_the_lease_may_open_it(stand: Stand) -> None:
    await stand.append(*"abc")
    entry = await probe(stand, "slow")
    await stand.redis.hset(stand.at.gate, "lease", 1)
    assert (await stand.carefully("y")).probe
    held = await stand.gate()
    await stand.tell("slow", delivered(entry, probe=True))
    assert await stand.gate() == {name: value for name, value in held.items() if name != "failures"}


@pytest.mark.parametrize("state", ["paused", "gone"])
async def test_what_an_operator_must_open_no_probe_opens(stand: Stand, state: str) -> None:
    await stand.append(*"abc")
    entry = await probe(stand)
    await stand.redis.hset(stand.at.gate, "state", state)
    await stand.tell("x", delivered(entry, probe=True))
    assert (await stand.gate())["state"] == state


async def test_what_is_reclaimed_behind_it_is_told(stand: Stand) -> None:
    await stand.claimed("dead", "k")
    await shut(stand)
    found = await reclaim(stand.redis, stand.at, "a", idle=0, most=10, start="-", in_work=[])
    assert (found.gate, len(found.entries)) == ("breaker", 1)


# The ramp


async def test_the_fleet_keeps_to_the_ramp(stand: Stand) -> None:
    """Three replicas that look when they are told to; the clock is moved by moving the ramp's beginning."""
    await stand.append(*(f"k{n}" for n in range(250)))
    made, at, turn = 0, 0.0, 0
    while at < 10.0:
        begin = (await stand.look()).now - round(at * 1000)
        await stand.redis.hset(stand.at.gate, "ramp", begin)
        if made:
            await stand.redis.hset(stand.at.rate, "ramp", begin)
        taken = await stand.carefully("xyz"[turn % 3], 200)
        at, turn = (taken.now - begin) / 1000, turn + 1
        unused = max(
            0, allowed_after(max(0.0, at - KEPT)) - made
        )  # when this machine stood still for so long
        assert made + unused + len(taken.entries) == allowed_after(at), at
        made = allowed_after(at)
        assert taken.wait >= 10
        assert taken.wait == 10 or allowed_after(at + taken.wait / 1000 - 0.002) == made
        at += taken.wait / 1000
    assert made > 100


async def test_what_a_ramp_allowed_and_nobody_used_is_not_kept(stand: Stand) -> None:
    await stand.append(*(f"k{n}" for n in range(100)))
    begin = (await stand.look()).now - 9_900
    await stand.redis.hset(stand.at.gate, "ramp", begin)
    taken = await stand.carefully("x", 100)
    at = (taken.now - begin) / 1000
    assert len(taken.entries) == allowed_after(at) - allowed_after(at - KEPT)  # 22 of 129 in all


async def test_a_ramp_begins_anew_with_each_probe(stand: Stand) -> None:
    await stand.append(*"abcdef")
    for consumer in "xy":
        entry = await probe(stand, consumer)
        await stand.tell(consumer, delivered(entry, probe=True))
        ramp = int((await stand.gate())["ramp"])
        await stand.redis.hset(stand.at.gate, "ramp", ramp - 550)
        assert len((await stand.carefully("z")).entries) == 1


async def test_a_clock_that_went_back_does_not_keep_it_closed(stand: Stand) -> None:
    await stand.append("k")
    now = (await stand.look()).now
    closed = {"state": "breaker", "opened_at": now + 3_600_000, "until": now + 3_630_000}
    await stand.redis.hset(stand.at.gate, mapping=closed | {"prober": "z", "lease": now + 3_640_000})
    assert (await stand.carefully("x")).probe
    gate = await stand.gate()
    assert gate["prober"] == "x"
    assert int(gate["opened_at"]) == int(gate["until"]) <= now + 60_000


async def test_a_clock_that_went_back_does_not_stop_a_ramp(stand: Stand) -> None:
    await stand.append("k")
    await stand.redis.hset(stand.at.gate, "ramp", (await stand.look()).now + 3_600_000)
    assert (await stand.carefully("x")).wait == 500


# The rate


async def test_a_rate_is_shared(stand: Stand) -> None:
    await stand.append(*(f"k{n}" for n in range(30)))
    taken = [await stand.carefully(name, 16, rate=0.01) for name in "xyz"]
    assert [len(each.entries) for each in taken] == [1, 0, 0]
    assert all(90_000 < each.wait <= 100_000 for each in taken)
    await stand.redis.delete(stand.at.rate)
    taken = [await stand.carefully(name, 4, rate=10.0) for name in "xyz"]
    assert [len(each.entries) for each in taken][:2] == [4, 4]
    since = (taken[2].now - taken[0].now) / 1000
    assert 2 <= len(taken[2].entries) <= 2 + 10 * since  # a second's worth, and what has come since


async def test_tokens_come_with_time_and_no_more_than_a_seconds_worth(stand: Stand) -> None:
    await stand.append(*(f"k{n}" for n in range(60)))
    await stand.carefully("x", 16, rate=8.0)
    for past, found in ((500, 4), (3_600_000, 8)):
        now = (await stand.look()).now
        await stand.redis.hset(stand.at.rate, mapping={"tokens": "0", "at": now - past})
        taken = await stand.carefully("y", 16, rate=8.0)
        assert found <= len(taken.entries) <= min(8, found + 8 * (taken.now - now) / 1000)


async def test_a_clock_that_went_back_does_not_stop_the_rate(stand: Stand) -> None:
    await stand.append("k")
    later = (await stand.look()).now + 3_600_000
    await stand.redis.hset(stand.at.rate, mapping={"tokens": "0", "at": later})
    assert len((await stand.carefully("x", rate=0.01)).entries) == 1


async def test_only_what_was_read_costs_a_token(stand: Stand) -> None:
    for _ in range(3):
        taken = await stand.carefully("x", 16, rate=0.01)
        assert (taken.entries, taken.wait) == ([], -1)
    await stand.append("k")
    assert len((await stand.carefully("x", 16, rate=0.01)).entries) == 1


async def test_no_more_is_promoted_than_the_rate_allows(stand: Stand) -> None:
    entries = await stand.claimed("a", *"abc")
    await stand.settle("a", *((entry, Later(0, spends=True)) for entry in entries))
    taken = await stand.carefully("x", 16, rate=0.01)
    assert len(taken.entries) == 1
    now = await stand.look()
    assert (now.waiting, now.retrying) == (1, 2)


async def test_what_was_sent_besides_is_paid_for(stand: Stand) -> None:
    await stand.append(*"abcdefgh")
    taken = await stand.carefully("x", 8, rate=0.05, besides=7)
    assert not taken.entries
    assert taken.wait == 140_000  # for six that are owed, and one
    assert not (await stand.carefully("y", 8, rate=0.05)).entries


async def test_a_probe_keeps_to_the_rate(stand: Stand) -> None:
    await stand.append(*"ab")
    await stand.carefully("x", 1, rate=0.01)
    await shut(stand, over=True)
    taken = await stand.carefully("x", 16, rate=0.01)
    assert (taken.probe, taken.entries) == (False, [])
    assert taken.wait > 1000


async def test_careful_or_not_the_same_is_read(stand: Stand) -> None:
    await stand.append(*"abc")
    taken = await stand.carefully("x", 2)
    assert (taken.wait, len(taken.entries)) == (-1, 2)
    rest = await stand.taken("x")
    assert not set(ids(taken.entries)) & set(ids(rest.entries))
    assert len(rest.entries) == 1
    assert list(taken.entries[0].fields) == list(rest.entries[0].fields)


async def test_a_duplicate_under_a_probe_gives_it_back(stand: Stand) -> None:
    await stand.append("k", "l")
    entry = await probe(stand)
    await stand.tell("x", Settling(entry, read(entry), Duplicate(), False, None, True))
    assert (await stand.carefully("y")).probe

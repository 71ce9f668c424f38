"""`redispatch retire`: what a removed destination still has becomes dead letters, and the ledger is exact."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis

from common.keys import GROUP
from common.outcomes import Dead, Delivered, Later, Reason, Settlement
from common.record import parse
from dispatcher.claim import Verdict
from dispatcher.entry import Entry
from tests.integration.protocol.stand import Stand
from tests.support.processes import Processes
from tests.support.servers import Server

DONE = "one: {} moved to its dead letters\n"


class Retire:
    """`redispatch retire` as a process, with a file that knows the destination `other` only."""

    def __init__(self, processes: Processes, server: Server) -> None:
        self._processes = processes
        self.sections: dict[str, Any] = {
            "redis": {"url": server.url, "timeout": "10s"},
            "destinations": [{"name": "other", "type": "discard"}],
            "routes": [{"to": ["other"]}],
        }

    async def __call__(self, *words: str, code: int = 0) -> tuple[str, str]:
        """What it prints; it must end with that exit code."""
        config = self._processes.config(self.sections)
        process = await self._processes.redispatch("retire", *words, config=config)
        assert await process.wait_exit() == code, process.text
        out, err = ("".join(f"{line}\n" for line in lines) for lines in (process.out, process.err))
        return out, err


@pytest.fixture
async def stand(server: Server, redis: Redis) -> Stand:
    """What the removed destination still has."""
    made = Stand(redis, cluster=server.kind == "cluster")
    await made.begin()
    return made


@pytest.fixture
def retire(server: Server, processes: Processes) -> Retire:
    """The command."""
    return Retire(processes, server)


async def test_everything_is_moved_and_the_ledger_is_exact(stand: Stand, retire: Retire) -> None:
    entries = await stand.claimed("gone", *"abcd")
    batch: list[tuple[Entry, Settlement]] = [
        (entries[0], Delivered(200)),
        (entries[1], Later(3600, spends=True, status=500, error="HTTP 500")),
    ]
    await stand.settle("gone", *batch)
    stand.limit(max_dead=1)
    await stand.settle("gone", (entries[2], Dead(Reason.ATTEMPTS, 503, "HTTP 503")))
    await stand.settle("gone", (entries[3], Dead(Reason.MAX_AGE, 504, "HTTP 504")))  # at the cap: it waits
    await stand.append("e", "f")
    assert await retire("one", "--yes") == (DONE.format("4 deliveries"), "")
    now = await stand.balanced()
    assert (now.depth, now.dead_letters, now.ledger.died) == (0, 5, 5)
    assert now.died == {"attempts": 1, "max_age": 1, "removed": 3}
    letters = {letter["key"]: letter for letter in await stand.letters()}
    reasons = {
        key: (letter["reason"], letter["status"], letter["attempts"]) for key, letter in letters.items()
    }
    assert reasons == {
        "b": ("removed", "", "1"),
        "c": ("attempts", "503", "1"),
        "d": ("max_age", "504", "1"),
        "e": ("removed", "", "0"),
        "f": ("removed", "", "0"),
    }
    assert letters["b"]["alert"] == entries[1].fields[b"alert"].decode()
    assert {key: await stand.state(key) for key in "abcdef"} == {
        "a": "delivered",
        **dict.fromkeys("bcdef", "dead"),
    }
    assert await stand.redis.pttl(stand.at.record("b")) > 0
    assert await retire("one") == (DONE.format("0 deliveries"), "")


async def test_what_is_in_work_is_left_alone_and_what_is_silent_is_not(stand: Stand, retire: Retire) -> None:
    busy, silent = await stand.claimed("old", "busy", "silent")
    await stand.redis.xclaim(stand.at.stream, GROUP, "old", 0, [silent.id], idle=120_000, justid=True)
    out, err = await retire("one", "--yes", code=1)
    assert out == DONE.format("1 delivery")
    assert err == "1 is in work at a replica that still knows it; run it again when they have ended\n"
    assert await stand.state("silent") == "dead"
    await stand.settle("old", (busy, Delivered(200)))
    now = await stand.balanced()
    assert (now.depth, now.in_flight, now.ledger.delivered, now.dead_letters) == (0, 0, 1, 1)
    await retire("one")


async def test_a_copy_does_not_touch_the_record_of_the_other(stand: Stand, retire: Retire) -> None:
    [entry] = await stand.claimed("old", "k")
    await stand.settle("old", (entry, Dead(Reason.ATTEMPTS)))
    [letter] = await stand.redis.xrange(stand.at.dead)
    await stand.replay(letter[0].decode())
    [again] = await stand.take("old")
    assert await stand.claim("old", again) == [Verdict.DELIVER]
    copy = {"key": "k", "alert": again.fields[b"alert"], "attempt": "0", "first_at": "1"}
    await stand.redis.xadd(stand.at.stream, copy)
    await stand.redis.hincrby(stand.at.ledger, "accepted", 1)
    await retire("one", "--yes", code=1)
    assert await stand.state("k") == "in_flight"
    await stand.settle("old", (again, Delivered(200)))
    assert parse(await stand.redis.get(stand.at.record("k"))).state == "delivered"
    await stand.balanced()


async def test_it_stops_at_the_cap(stand: Stand, retire: Retire) -> None:
    await stand.append(*(f"k{n}" for n in range(5)))
    retire.sections["queue"] = {"max_dead": 3}
    out, err = await retire("one", "--yes", code=1)
    assert out == DONE.format("3 deliveries")
    assert "at their cap (3)" in err
    assert (await stand.balanced()).waiting == 2


async def test_more_than_a_batch_and_what_is_malformed(stand: Stand, retire: Retire) -> None:
    await stand.append(*(f"k{n}" for n in range(230)))
    entries = await stand.take("old", 120)
    await stand.settle("old", *((e, Later(9, spends=False)) for e in entries), claimed=False)
    await stand.redis.xadd(stand.at.stream, {"what": "ever"})
    await stand.redis.zadd(stand.at.retry, {b"no member of ours \xff": 1})
    assert await retire("one", "--yes") == (DONE.format("232 deliveries"), "")
    now = await stand.balanced()
    assert (now.depth, now.dead_letters) == (0, 232)
    alerts = [fields[b"alert"] for _, fields in await stand.redis.xrange(stand.at.dead)]
    assert alerts.count(b"what ever") == alerts.count(b"no member of ours \xff") == 1


async def test_a_destination_that_is_configured_is_refused(stand: Stand, retire: Retire) -> None:
    await stand.append("k")
    _, err = await retire("other", "--yes", code=1)
    assert err == "Error: other is in the configuration: take it out of the file first\n"
    assert "no destination 'third'" in (await retire("third", code=1))[1]
    assert "say --yes" in (await retire("one", code=1))[1]
    assert (await stand.balanced()).waiting == 1


async def test_a_destination_that_comes_back_begins_with_an_open_gate(stand: Stand, retire: Retire) -> None:
    await stand.append("k")
    await stand.redis.hset(stand.at.gate, mapping={"state": "gone", "reason": "HTTP 410"})
    await retire("one", "--yes")
    assert await stand.gate() == {}

"""A receiver that is down for its whole retry horizon: what dies is complete, and arrives when replayed."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from tests.e2e.test_ops import redispatch
from tests.support.fleet import NAME, Fleet, Fleets, Running
from tests.support.receiver import Answer, Receiver
from tests.support.servers import Server

COUNT = 6
ATTEMPTS = 3
QUICK = {"preset": "page", "base": "20ms", "cap": "40ms"}
MINUTE = {"visibility_timeout": "60s"}  # nobody is taken for dead because the machine is busy
BREAKER = {"failures": 4, "open": "50ms"}  # it closes again and again meanwhile


async def fleet_of_three(fleet: Fleet) -> Running:
    (ingest, _), _, _ = await asyncio.gather(fleet.both(), fleet.dispatcher(), fleet.dispatcher())
    return ingest


async def dead_letters(fleet: Fleet, keys: set[str]) -> list[dict[str, Any]]:
    """As the command lists them, once each of these has died and nothing else is left; times are checked."""
    found = await fleet.wait_snapshot(lambda seen: seen.depth == 0, "everything to die", 60)
    assert (found.dead_letters, found.ledger.died, found.ledger.delivered) == (len(keys), len(keys), 0)
    letters: list[dict[str, Any]] = await redispatch(fleet, "dead", "list", "--json")
    assert Counter(letter["key"] for letter in letters) == Counter(keys)
    for letter in letters:
        assert datetime.fromisoformat(letter["first_at"]) < datetime.fromisoformat(letter["died_at"])
    return letters


async def replay(fleet: Fleet, posted: list[str]) -> None:
    """All of them arrive, once, and nothing is left anywhere."""
    assert (await redispatch(fleet, "dead", "replay", "--json"))["replayed"] == len(posted)
    await fleet.receiver.wait_ids(set(posted), 60)
    seen = await fleet.wait_snapshot(lambda seen: seen.depth == 0, "an empty queue")
    assert (seen.dead_letters, seen.in_flight, seen.ledger.lost) == (0, 0, 0)
    assert (seen.ledger.delivered, seen.ledger.replayed) == (len(posted), len(posted))
    assert fleet.receiver.accepted == Counter(posted)
    [told] = (await redispatch(fleet, "status", "--json"))["ledger"]
    assert told["unaccounted"] == 0


async def test_a_port_where_nobody_listens(fleets: Fleets, valkey: Server, receiver: Receiver) -> None:
    await receiver.stop()
    fleet = await fleets(
        valkey, dispatcher=MINUTE, destination={"retry": {**QUICK, "attempts": ATTEMPTS}, "breaker": BREAKER}
    )
    ingest = await fleet_of_three(fleet)
    posted = await fleet.post(ingest, COUNT)
    for letter in await dead_letters(fleet, set(posted)):
        assert (letter["reason"], letter["attempts"], letter["status"]) == ("attempts", ATTEMPTS, None)
        assert "cannot connect to 127.0.0.1" in letter["error"]
    await receiver.start()
    await replay(fleet, posted)


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        (Answer(500, body=b"out of order"), 500, "HTTP 500: out of order"),
        (Answer(until=asyncio.Event()), None, "timeout"),
        (Answer(disconnect=True), None, "127.0.0.1"),
    ],
    ids=["answers 500", "hangs", "hangs up"],
)
async def test_one_that_takes_nothing(
    fleets: Fleets, valkey: Server, receiver: Receiver, answer: Answer, status: int | None, error: str
) -> None:
    receiver.default = answer
    retry = {**QUICK, "attempts": ATTEMPTS}
    timeout = "1s" if answer.until else "10s"
    fleet = await fleets(
        valkey, dispatcher=MINUTE, destination={"retry": retry, "breaker": BREAKER, "timeout": timeout}
    )
    ingest = await fleet_of_three(fleet)
    posted = await fleet.post(ingest, COUNT)
    for letter in await dead_letters(fleet, set(posted)):
        assert (letter["reason"], letter["attempts"], letter["status"]) == ("attempts", ATTEMPTS, status)
        assert error in letter["error"], letter
    tried = Counter(request.id for request in receiver.requests)
    assert tried == Counter(dict.fromkeys(posted, ATTEMPTS))
    receiver.default = Answer()
    await replay(fleet, posted)


async def test_what_grows_too_old_behind_the_gate_tells_what_its_last_attempt_met(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    receiver.default = Answer(503, body=b"maintenance")
    retry = {**QUICK, "attempts": 100, "max_age": "4s"}  # also long enough to be tried when it is replayed
    fleet = await fleets(
        valkey, dispatcher=MINUTE, destination={"retry": retry, "breaker": BREAKER | {"open": "500ms"}}
    )
    ingest = await fleet_of_three(fleet)
    posted = await fleet.post(ingest, COUNT)
    letters = await dead_letters(fleet, set(posted))
    tried = Counter(request.id for request in receiver.requests)
    assert {letter["key"]: letter["attempts"] for letter in letters} == {key: tried[key] for key in posted}
    for letter in letters:
        assert letter["reason"] == "max_age"
        assert letter["status"] == (503 if letter["attempts"] else None)
        assert ("HTTP 503: maintenance" in letter["error"]) == bool(letter["attempts"]), letter
    receiver.default = Answer()
    await redispatch(fleet, "resume", NAME)  # on the ramp after a probe most would be too old again
    await replay(fleet, posted)

"""One gate for three dispatchers: an outage, a destination that is gone or throttles, and a rate."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable

import pytest

from common.snapshot import Snapshot
from tests.support.fleet import AT, Fleet, Fleets, Running, eventually
from tests.support.receiver import Answer, Receiver, Request
from tests.support.servers import Server

MINUTE = {"visibility_timeout": "60s"}  # nobody is taken for dead because the machine is busy
PATIENT = {"retry": {"preset": "webhook", "base": "10ms", "cap": "20ms", "attempts": 100}}


def is_in(state: str | None) -> Callable[[Snapshot], bool]:
    """Whether the gate is in that state; None is open."""
    return lambda seen: seen.gate.get("state") == state


async def three(fleet: Fleet) -> tuple[Running, list[Running]]:
    ingest, *dispatchers = await asyncio.gather(
        fleet.ingest(), fleet.dispatcher(), fleet.dispatcher(), fleet.dispatcher()
    )
    return ingest, dispatchers


async def metrics(dispatchers: list[Running], name: str, **labels: str) -> float:
    return sum([await each.metric(name, **labels) for each in dispatchers])


async def test_after_an_outage_one_probe_opens_it_and_the_others_follow_on_a_ramp(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    receiver.default = Answer(500)
    fleet = await fleets(
        valkey,
        dispatcher=MINUTE,
        destination={**PATIENT, "timeout": "60s", "breaker": {"failures": 5, "open": "1s"}},
    )
    ingest, dispatchers = await three(fleet)
    posted = await fleet.post(ingest, 30)
    seen = await fleet.wait_snapshot(is_in("breaker"), "a closed gate")
    assert seen.gate["reason"] == "HTTP 500"
    until = int(seen.gate["until"])
    # Whatever was on its way when it closed has been made as well.
    again = await fleet.wait_snapshot(
        lambda seen: int(seen.gate["until"]) > until and not seen.in_flight, "a probe that failed"
    )
    # The next one is held back: nothing else is sent until it has an answer.
    held = asyncio.Event()
    before = len(receiver.requests)
    receiver.default = Answer(until=held)
    await receiver.wait_for(before + 1)
    seen = await fleet.wait_snapshot(lambda seen: seen.in_flight == 1, "one in flight")
    assert seen.gate["prober"] in {each.consumer for each in dispatchers}
    assert seen.now >= int(again.gate["until"])
    assert len(receiver.requests) == before + 1
    receiver.default = Answer()
    held.set()
    assert await fleet.wait_snapshot(lambda seen: "ramp" in seen.gate, "a ramp")
    await receiver.wait_ids(set(posted), 60)
    await fleet.settled()
    fleet.assert_no_duplicates()
    lines = [each.lines("gate_closed") for each in dispatchers]
    assert all(line["state"] == "breaker" and line["until"] for told in lines for line in told)
    assert all(lines)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
async def test_the_probe_of_one_that_dies_or_stands_still_is_made_by_another_when_its_lease_ends(
    fleets: Fleets, valkey: Server, receiver: Receiver, how: signal.Signals
) -> None:
    receiver.default = Answer(500)
    breaker = {"failures": 3, "open": "500ms"}
    fleet = await fleets(
        valkey,
        dispatcher={"visibility_timeout": "3s"},
        destination={**PATIENT, "timeout": "3s", "breaker": breaker},
    )
    ingest, dispatchers = await three(fleet)
    posted = await fleet.post(ingest, 10)
    await fleet.wait_snapshot(
        lambda seen: seen.gate.get("state") == "breaker" and not seen.in_flight, "closed"
    )
    before = len(receiver.requests)
    receiver.default = Answer(until=asyncio.Event())  # never
    await receiver.wait_for(before + 1)
    seen = await fleet.snapshot()
    [prober] = [each for each in dispatchers if each.consumer == seen.gate["prober"]]
    prober.process.signal(how)
    receiver.default = Answer()
    requests = await receiver.wait_for(before + 2)
    assert requests[-1].at * 1000 >= int(seen.gate["lease"])
    await receiver.wait_ids(set(posted), 60)
    if how is signal.SIGSTOP:
        prober.thaw()
    await fleet.settled()
    fleet.assert_no_duplicates()


async def test_a_destination_that_is_gone_keeps_its_deliveries_until_resume(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    receiver.default = Answer(410)
    fleet = await fleets(
        valkey,
        dispatcher=MINUTE,
        destination={"retry": {"preset": "webhook", "base": "10h", "cap": "10h"}},
    )
    ingest, dispatchers = await three(fleet)
    posted = await fleet.post(ingest, 8)
    seen = await fleet.wait_snapshot(is_in("gone"), "a closed gate")
    assert seen.gate["reason"] == "HTTP 410"
    seen = await fleet.wait_snapshot(lambda seen: seen.in_flight == 0, "all handed back")
    more = await fleet.post(ingest, 3)
    await fleet.wait_snapshot(lambda seen: seen.depth == 11, "all of them behind it")
    refused = Counter(request.id for request in receiver.requests)
    assert set(refused.values()) == {1}
    receiver.default = Answer()
    valkey.cli("DEL", AT.gate)
    # Those before the third have spent an attempt: up to two, as settlements come together, and they wait for
    # up to ten hours (full jitter).
    await eventually(lambda: len(receiver.accepted) >= 9, "all but two")
    seen = await fleet.wait_snapshot(
        lambda seen: not seen.in_flight and seen.depth == 11 - len(receiver.accepted), "the rest"
    )
    assert seen.dead_letters == 0
    spent = {*posted, *more} - set(receiver.accepted)
    assert len(spent) <= 2
    assert spent <= set(refused)
    assert set(receiver.accepted.values()) == {1}
    assert await metrics(dispatchers, "redispatch_attempts_total", outcome="gone") == len(refused)
    assert await metrics(dispatchers, "redispatch_retries_total", reason="gone") == len(refused)


async def test_retry_after_is_heeded_by_all_and_costs_no_attempt(
    fleets: Fleets, valkey: Server, receiver: Receiver
) -> None:
    refused: list[Request] = []

    def answer(request: Request) -> Answer:
        if len(refused) < 3:
            refused.append(request)
            return Answer(429, {"Retry-After": "2"})
        return Answer()

    receiver.default = answer
    fleet = await fleets(
        valkey,
        dispatcher=MINUTE,
        destination={"retry": {"preset": "page", "attempts": 1, "base": "10ms"}},
    )
    ingest, _ = await three(fleet)
    posted = await fleet.post(ingest, 3)
    seen = await fleet.wait_snapshot(is_in("throttled"), "a closed gate")
    more = await fleet.post(ingest, 5)
    await receiver.wait_ids({*posted, *more}, 60)
    # Of those before, some may have been on their way when it closed.
    held = [request.at for request in receiver.requests if request.id in more]
    assert min(held) * 1000 >= int(seen.gate["until"])
    await fleet.settled()
    assert {request.json()["data"]["attempt"] for request in receiver.requests} == {1}


async def test_a_rate_is_kept_by_all_together(fleets: Fleets, valkey: Server, receiver: Receiver) -> None:
    fleet = await fleets(valkey, dispatcher=MINUTE, destination={"rate": "10/s"})
    ingest, _ = await three(fleet)
    began = time.time()
    posted = await fleet.post(ingest, 40)
    await receiver.wait_ids(set(posted), 60)
    assert receiver.requests[-1].at - began >= (40 - 10) / 10  # a second's worth was there
    await fleet.settled()

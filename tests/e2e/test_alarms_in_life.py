"""Alarms are raised by what happens to running services, and end with it, in a real Prometheus.

Its rules are in a hurry: seconds stand for minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from common.keys import GROUP
from tests.support.fleet import AT, NAME, Fleet, Fleets, Running
from tests.support.prometheus import Prometheus, hasty, started
from tests.support.receiver import Answer, Receiver, Request
from tests.support.servers import Server, free_port

SILENCE = 'absent(ALERTS{alertname=~"Redispatch.*"})'


@dataclass
class Life:
    """One of each service, and what looks at them."""

    fleet: Fleet
    ingest: Running
    dispatcher: Running
    prometheus: Prometheus

    async def redispatch(self, *words: str) -> None:
        """A command that succeeds."""
        process = await self.fleet.processes.redispatch(*words, config=self.fleet.config())
        assert await process.wait_exit() == 0, process.text

    async def raised(self, alarm: str, **labels: str) -> None:
        """It is, with these labels."""
        told = await self.prometheus.raised(alarm)
        assert labels.items() <= told.items(), told
        assert told["namespace"] == "here"


async def live(fleet: Fleet) -> Life:
    """They run, are scraped, and no alarm is raised."""
    ingest, dispatcher = await fleet.both()
    rules = hasty(fleet.processes)
    jobs: dict[str, Any] = {"ingest": [ingest], "dispatcher": [dispatcher]}
    prometheus = await started(fleet.processes, fleet.http, rules=rules, **jobs)
    await prometheus.wait("count(up == 1) == 2 and max(redispatch_consumers) == 1")
    await prometheus.wait(SILENCE)  # none was seen before the first scrape
    return Life(fleet, ingest, dispatcher, prometheus)


async def missing_by_hand(life: Life) -> None:
    """Behind a closed gate entries grow old; one is removed, which is understood and booked."""
    await life.redispatch("pause", NAME)
    await life.raised("GateClosed", destination=NAME, reason="paused")
    await life.fleet.post(life.ingest, 9)
    await life.raised("DeliveriesWait", destination=NAME)
    await life.raised("QueueNearLimit", destination=NAME)
    [[first, _]] = life.fleet.server.cli("XRANGE", AT.stream, "-", "+", "COUNT", 1)
    life.fleet.server.cli("XDEL", AT.stream, first)
    await life.raised("Unaccounted", destination=NAME)
    await life.redispatch("ledger", "accept", NAME, "--yes")
    await life.raised("EntriesLost", destination=NAME)
    await life.prometheus.over("Unaccounted")
    await life.redispatch("resume", NAME)
    for alarm in ("GateClosed", "DeliveriesWait", "QueueNearLimit", "EntriesLost"):
        await life.prometheus.over(alarm)


async def given_up(life: Life) -> None:
    """Nearly as many dead letters as there may be; meanwhile somebody reads with another group."""
    life.fleet.server.cli("XGROUP", "CREATE", AT.stream, "mine", "$")
    life.fleet.receiver.default = Answer(400)
    await life.fleet.post(life.ingest, 9)
    await life.raised("DeadLettersGrow", destination=NAME)
    await life.raised("DeadLettersNearLimit", destination=NAME)
    await life.raised("RedisUnsafe", kind="second_group")
    life.fleet.server.cli("XGROUP", "DESTROY", AT.stream, "mine")
    life.fleet.receiver.default = Answer()
    await life.redispatch("dead", "replay", "--limit", "8")
    for alarm in ("DeadLettersGrow", "DeadLettersNearLimit", "RedisUnsafe"):
        await life.prometheus.over(alarm)


async def stuck(life: Life) -> None:
    """The only slot is taken by a receiver that does not answer, while a retry is due; somebody removes the
    consumer, which comes back when the dispatcher asks for more.

    Two wait for a retry: whatever the backoff, the take that gets the slow one puts one of them back at most.
    """
    fleet, held = life.fleet, asyncio.Event()

    def answer(request: Request) -> Answer:
        if request.json()["data"]["name"] == "slow":
            return Answer(until=held)
        return Answer(200 if held.is_set() else 500)

    fleet.receiver.default = answer
    for name in ("broken", "broken"):
        assert (await fleet.send(life.ingest, fleet.alert() | {"name": name}))[0] == 201
    await fleet.wait_snapshot(lambda seen: seen.retrying == 2, "two retries")
    assert (await fleet.send(life.ingest, fleet.alert() | {"name": "slow"}))[0] == 201
    await life.raised("RetryOverdue", destination=NAME)
    await life.raised("NoProgress")
    await life.raised("CanaryLate", destination=NAME)
    fleet.server.cli("XGROUP", "DELCONSUMER", AT.stream, GROUP, life.dispatcher.consumer)
    await life.raised("ConsumersMissing", destination=NAME)
    held.set()
    for alarm in ("RetryOverdue", "NoProgress", "CanaryLate", "ConsumersMissing"):
        await life.prometheus.over(alarm)


async def bad_configuration(life: Life) -> None:
    """A file that can't be used; then one in which the destination with its dead letter has another name."""
    life.fleet.receiver.default = Answer(400)
    await life.fleet.post(life.ingest)
    await life.fleet.wait_snapshot(lambda seen: seen.dead_letters == 1, "a dead letter")
    good = life.fleet.config().read_text()
    path = life.fleet.processes.config("destinations: 7\n")
    await life.prometheus.wait(
        'count(ALERTS{alertname="RedispatchConfigNotReloaded",alertstate="firing"}) == 2'
    )
    content = yaml.safe_load(good)
    content["destinations"][0]["name"] = "renamed"
    content["routes"] = [{"to": ["renamed"]}]
    path.write_text(yaml.safe_dump(content))
    await life.prometheus.over("ConfigNotReloaded")
    await life.raised("DestinationRemoved", destination=NAME)
    path.write_text(good)
    await life.prometheus.over("DestinationRemoved")


async def nobody_there(life: Life) -> None:
    """Ingest ends, which only canaries tell; then the dispatcher; others come at the same addresses."""
    assert await life.ingest.process.stop() == 0
    await life.raised("CanaryLate", destination=NAME)
    await life.fleet.ingest()
    await life.prometheus.over("CanaryLate")
    assert await life.dispatcher.process.stop() == 0
    await life.prometheus.raised("NoDispatcher")
    await life.fleet.dispatcher()
    await life.prometheus.over("NoDispatcher")


PARTS = (missing_by_hand, given_up, stuck, bad_configuration, nobody_there)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
async def test_alarms_come_and_go(
    part: Callable[[Life], Awaitable[None]], fleets: Fleets, new_server: Any, receiver: Receiver
) -> None:
    server: Server = new_server("valkey", aof=True)
    fleet = await fleets(
        server,
        destination={
            "max_in_flight": 1,
            "retry": {"preset": "page", "base": "1s", "cap": "1s", "attempts": 100},
            "breaker": {"failures": 100},
            "timeout": "100s",  # what holds the only slot holds it to the end of the test
        },
        queue={"max_depth": 10, "max_dead": 10},
        canary={"every": "1s"},
        ingest={"listen": f"127.0.0.1:{free_port()}"},
        dispatcher={"listen": f"127.0.0.1:{free_port()}", "visibility_timeout": "1s"},
    )
    life = await live(fleet)
    await part(life)
    await life.prometheus.wait(SILENCE)

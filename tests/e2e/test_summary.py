"""A summary on its way through real processes: whoever dies in between, what comes after gets one of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from common import connect, keys, settings
from common.scripts import Script
from common.snapshot import Snapshot, snapshot
from common.units import Duration
from tests.support.fleet import NAME, NAMESPACE, PATIENCE, Fleet, Fleets, Running, eventually
from tests.support.model import SAID, Model, refuses, says
from tests.support.proxy import Proxy
from tests.support.receiver import Answer, Receiver
from tests.support.servers import Server

FIRST = "summarizer"
AT = keys.Destination(NAMESPACE, FIRST)
APPEND = Script("common", "append").digest.encode()


@dataclass
class Chain(Fleet):
    """Everything goes to a model, and what it makes of it to the receiver."""

    model: Model = field(default_factory=Model)
    visibility: str = "1s"

    def config(self) -> Path:
        """Two destinations, one after the other; quick retries."""
        quick = {"base": "50ms", "cap": "200ms"}
        first: dict[str, Any] = {"name": FIRST, "type": "summary", "url": self.model.base, "then": [NAME]}
        first |= {"model": "small", "allow_private": True, "timeout": "30s", "retry": quick}
        hook = {"name": NAME, "type": "webhook", "url": self.receiver.url, "allow_private": True}
        return self.processes.config(
            {
                "redis": {"url": self.url, "namespace": NAMESPACE, "timeout": PATIENCE},
                "ingest": {"listen": "127.0.0.1:0"},
                "dispatcher": {
                    "listen": "127.0.0.1:0",
                    "visibility_timeout": self.visibility,
                    "max_deliveries": 3,
                },
                "destinations": [first, hook | {"retry": {"preset": "page", **quick}}],
                "routes": [{"to": [FIRST]}],
            }
        )

    async def begin(self, ingest: Running, count: int = 1) -> list[str]:
        """Post so many new alerts; the keys of what is to arrive."""

        async def one() -> str:
            async with self.http.post(ingest.url + "/v1/alerts", json=self.alert()) as answer:
                assert answer.status == 201, await answer.text()
                told = await answer.json()
                assert told["destinations"] == [FIRST]
                return f"{told['key']}:{FIRST}"

        return await asyncio.gather(*(one() for _ in range(count)))

    async def look(self) -> tuple[Snapshot, Snapshot]:
        """Both destinations, each with an exact ledger."""
        redis = connect.client(settings.Redis(url=self.server.url, timeout=Duration(10)))
        try:
            first, last = [await snapshot(redis, NAMESPACE, name) for name in (FIRST, NAME)]
        finally:
            await redis.aclose(close_connection_pool=True)
        assert (first.unaccounted, last.unaccounted) == (0, 0)
        return first, last

    async def ended(self, count: int) -> None:
        """Until all is done: so many came, so many went on, none died."""

        async def empty() -> tuple[Snapshot, Snapshot] | None:
            first, last = await self.look()
            return (first, last) if first.depth == last.depth == 0 else None

        first, last = await eventually(empty, "two empty queues")
        for seen in (first, last):
            told = seen.ledger
            assert (told.accepted, told.delivered, told.died, told.lost) == (count, count, 0, 0), seen

    def arrived(self) -> list[dict[str, str]]:
        """The annotations of what the receiver got."""
        return [request.json()["data"]["annotations"] for request in self.receiver.requests]


New = Callable[..., Awaitable[Chain]]


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    """A model that says SAID until it is told otherwise."""
    async with Model() as started:
        yield started


@pytest.fixture
async def chain(fleets: Fleets, model: Model) -> New:
    """`await chain(server)`: services on that server."""

    async def make(server: Server, **options: Any) -> Chain:
        made = await fleets(server, **options)
        return Chain(made.processes, made.receiver, server, made.url, made.http, model=model)

    return make


async def test_a_summary_arrives(chain: New, valkey: Server, receiver: Receiver, model: Model) -> None:
    fleet = await chain(valkey)
    ingest, _ = await fleet.both()
    posted = await fleet.begin(ingest, 20)
    await receiver.wait_ids(set(posted))
    await fleet.ended(20)
    assert receiver.accepted == dict.fromkeys(posted, 1)
    assert all(told == {"ai_summary": SAID, "ai_summary_by": "small"} for told in fleet.arrived())
    assert len(model.requests) == 20


async def test_killed_between_append_and_settle(
    chain: New,
    valkey: Server,
    receiver: Receiver,
    model: Model,
    proxied: Callable[[Server], Proxy],
) -> None:
    proxy = await proxied(valkey).start()
    fleet = await chain(valkey, through=proxy.url)
    receiver.default = Answer(503)
    gate = asyncio.Event()
    model.answers.append(says(until=gate))
    model.default = says("What another call says.")
    ingest, doomed = await fleet.both()
    [key] = await fleet.begin(ingest)
    await model.wait_for(1)
    proxy.lose_reply(APPEND)
    gate.set()
    await proxy.wait_lost()
    proxy.refuse()  # so that no settlement gets through either
    await doomed.process.kill()
    first, last = await fleet.look()
    assert (first.in_flight, first.ledger.delivered) == (1, 0)
    assert last.ledger.accepted == 1
    proxy.refuse(False)
    receiver.default = Answer()
    heir = await fleet.dispatcher()
    await receiver.wait_ids({key})
    await fleet.ended(1)
    assert await heir.metric("redispatch_reclaimed_total", destination=FIRST) == 1
    assert len(model.requests) == 2
    assert receiver.accepted == {key: 1}
    assert {request.id for request in receiver.requests} == {key}
    assert fleet.arrived()[-1]["ai_summary"] == SAID  # what was first


async def test_killed_during_the_call(chain: New, valkey: Server, receiver: Receiver, model: Model) -> None:
    fleet = await chain(valkey)
    model.answers.append(says(until=asyncio.Event()))
    ingest, doomed = await fleet.both()
    [key] = await fleet.begin(ingest)
    await model.wait_for(1)
    await doomed.process.kill()
    await fleet.dispatcher()
    await receiver.wait_ids({key})
    await fleet.ended(1)
    assert receiver.accepted == {key: 1}


async def test_dispatchers_that_die_under_load(
    chain: New, valkey: Server, receiver: Receiver, model: Model
) -> None:
    fleet = await chain(valkey)
    ingest = await fleet.ingest()
    posted = await fleet.begin(ingest, 150)
    for deaths in (1, 2, 3):
        doomed = await fleet.dispatcher()
        await model.wait_answered(30 * deaths)
        await doomed.process.kill()
    await fleet.dispatcher()
    await receiver.wait_ids(set(posted))
    await fleet.ended(150)
    assert receiver.accepted.keys() == set(posted)


async def test_a_call_of_several_visibility_timeouts_stays_where_it_is(
    chain: New, valkey: Server, receiver: Receiver, model: Model
) -> None:
    gate = asyncio.Event()
    model.answers.append(says(until=gate))
    fleet = await chain(valkey)
    fleet.visibility = "4s"  # nobody stands still for so long unasked
    ingest, _, _ = await asyncio.gather(fleet.ingest(), fleet.dispatcher(), fleet.dispatcher())
    [key] = await fleet.begin(ingest)
    await model.wait_for(1)
    before = fleet.calls("xclaim")

    await eventually(lambda: fleet.calls("xclaim") >= before + 7, "7 refreshments, 3 in a timeout")
    [(_, _, _, deliveries)] = valkey.cli("XPENDING", AT.stream, keys.GROUP, "-", "+", 10)
    assert deliveries == 1
    gate.set()
    await receiver.wait_ids({key})
    await fleet.ended(1)
    assert len(model.requests) == 1


async def test_a_model_that_never_answers_well(
    chain: New, valkey: Server, receiver: Receiver, model: Model
) -> None:
    bad = [Answer(disconnect=True), refuses(500), Answer(body=b"<html>"), says(None)]
    model.answers.extend(bad)
    fleet = await chain(valkey)
    ingest, dispatcher = await fleet.both()
    [key] = await fleet.begin(ingest)
    await receiver.wait_ids({key})
    await fleet.ended(1)
    [told] = fleet.arrived()
    assert told == {"ai_summary": "FIRING: disk on host-1", "ai_summary_by": "plain"}
    assert len(model.requests) == len(bad)
    await dispatcher.process.wait_line('"event":"ended_instead"')
    [line] = dispatcher.lines("ended_instead")
    assert (line["destination"], line["reason"]) == (FIRST, "attempts")


async def test_a_model_that_is_away_keeps_nobody_waiting(
    chain: New, valkey: Server, receiver: Receiver, model: Model
) -> None:
    """Many in a row fail: no gate closes over it, each goes on plainly."""
    await model.stop()
    fleet = await chain(valkey)
    ingest, _ = await fleet.both()
    posted = await fleet.begin(ingest, 60)
    await receiver.wait_ids(set(posted))
    await fleet.ended(60)
    assert {told["ai_summary_by"] for told in fleet.arrived()} == {"plain"}


async def test_a_wrong_key_keeps_nobody_waiting(
    chain: New, valkey: Server, receiver: Receiver, model: Model
) -> None:
    model.default = refuses(401, "invalid api key")
    fleet = await chain(valkey)
    ingest, dispatcher = await fleet.both()
    posted = await fleet.begin(ingest, 10)
    await receiver.wait_ids(set(posted))
    await fleet.ended(10)
    await eventually(lambda: len(dispatcher.lines("ended_instead")) == 10, "a line of each")
    assert {line["reason"] for line in dispatcher.lines("ended_instead")} == {"rejected"}


async def test_a_pill_that_kills_dispatchers_is_passed_on_plainly(
    chain: New, valkey: Server, receiver: Receiver, model: Model
) -> None:
    model.default = says(until=asyncio.Event())
    fleet = await chain(valkey)
    ingest = await fleet.ingest()
    [key] = await fleet.begin(ingest)
    for deaths in (1, 2, 3):
        doomed = await fleet.dispatcher()
        await model.wait_for(deaths)
        await doomed.process.kill()
    last = await fleet.dispatcher()
    await receiver.wait_ids({key})
    await fleet.ended(1)
    await last.process.wait_line('"event":"ended_instead"')
    [line] = last.lines("ended_instead")
    assert line["reason"] == "max_deliveries"
    assert fleet.arrived()[0]["ai_summary_by"] == "plain"

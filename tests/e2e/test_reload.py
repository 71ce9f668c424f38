"""The configuration changes while both services work: under load, replica by replica, and with a broken one.

Each process has a file of its own, which is replaced as an editor does it. SIGHUP only makes it quicker than
the two seconds between two looks. A destination's URL ends in its name: so the receiver tells them apart.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp
import pytest
import yaml

from common import connect, keys, settings
from common.snapshot import Ledger, Snapshot, snapshot
from common.units import Duration
from tests.support.fleet import DEADLINE, LOOK, NAMESPACE, PATIENCE, Fleet, Fleets, Running, eventually
from tests.support.receiver import Answer, Receiver
from tests.support.servers import Server

Content = dict[str, Any]


class Rollout:
    """Services that each have their own file, and what was acknowledged: destination and key."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.acknowledged: set[tuple[str, str]] = set()
        self.destination: Content = {}  # further settings of each
        self.dispatcher_section: Content = {}
        self.patience = PATIENCE  # for Redis

    def content(self, *names: str, **more: Any) -> Content:
        """A configuration that sends everything to these; `more` replaces sections."""
        retry = {"preset": "page", "base": "50ms", "cap": "1s"}
        return {
            "redis": {"url": self.fleet.url, "namespace": NAMESPACE, "timeout": self.patience},
            "ingest": {"listen": "127.0.0.1:0"},
            "dispatcher": {"listen": "127.0.0.1:0", "visibility_timeout": "1s", **self.dispatcher_section},
            "destinations": [
                {
                    "name": name,
                    "type": "webhook",
                    "url": self.fleet.receiver.url + name,
                    "allow_private": True,
                    "retry": retry,
                    **self.destination,
                }
                for name in names
            ],
            "routes": [{"to": list(names)}],
            **more,
        }

    async def ingest(self, file: str, content: Content) -> Running:
        """One that reads this file, once it has seen Redis."""
        config = self.fleet.processes.config(content, file)
        return await self.fleet.listening(await self.fleet.processes.ingest(config), "redis_seen")

    async def dispatcher(self, file: str, content: Content) -> Running:
        """One that reads this file, once it delivers."""
        config = self.fleet.processes.config(content, file)
        return await self.fleet.listening(await self.fleet.processes.dispatcher(config), "delivering")

    def put(self, file: str, content: Content | str) -> None:
        """Replace the file."""
        text = content if isinstance(content, str) else yaml.safe_dump(content)
        new = self.fleet.processes.directory / f"{file}.new"
        new.write_text(text)
        new.rename(self.fleet.processes.directory / file)

    async def change(
        self, service: Running, file: str, content: Content, event: str, nothing: bool = True
    ) -> dict[str, Any]:
        """Replace it, and wait until the service has said what it makes of it.

        Not `nothing`: a line that says that nothing has changed is of the look before, or after, that the
        service takes unasked.
        """
        before = len(service.lines(event))
        self.put(file, content)
        service.process.signal(signal.SIGHUP)

        def told() -> list[dict[str, Any]]:
            return [line for line in service.lines(event)[before:] if nothing or line["changes"] != "nothing"]

        await eventually(told, f"another {event}")
        return told()[0]

    async def reload(self, service: Running, file: str, content: Content) -> str:
        """What the service says has changed."""
        return str((await self.change(service, file, content, "config_reloaded", nothing=False))["changes"])

    async def posted(self, ingest: Running) -> Content | None:
        """The answer to one alert if it was acknowledged; else it is refused with 503."""
        async with self.fleet.http.post(ingest.url + "/v1/alerts", json=self.fleet.alert()) as answer:
            told: Content = await answer.json(content_type=None)
            assert answer.status in (201, 503), told
        if answer.status == 503:
            return None
        self.acknowledged |= {(name, told["key"]) for name in told["destinations"]}
        return told

    async def post(self, ingest: Running) -> tuple[str, list[str]]:
        """One alert, acknowledged; its key and where it goes."""
        told = await self.posted(ingest)
        assert told is not None
        return told["key"], told["destinations"]

    @asynccontextmanager
    async def load(self, *ingests: Running) -> AsyncIterator[None]:
        """Senders that post one alert after the other, to each ingest; every one has to be acknowledged."""
        over = asyncio.Event()

        async def sender(ingest: Running) -> None:
            while not over.is_set():
                await self.post(ingest)
                await asyncio.sleep(LOOK)

        tasks = [asyncio.create_task(sender(ingest)) for ingest in ingests for _ in range(2)]
        try:
            yield
        finally:
            over.set()
            await asyncio.gather(*tasks)

    @asynccontextmanager
    async def ready(self, *services: Running) -> AsyncIterator[None]:
        """Each of them is, all the time."""
        over = asyncio.Event()

        async def ask(service: Running) -> None:
            while not over.is_set():
                assert await service.status("/readyz") == 200
                await asyncio.sleep(LOOK)

        tasks = [asyncio.create_task(ask(service)) for service in services]
        try:
            yield
        finally:
            over.set()
            await asyncio.gather(*tasks)

    @property
    def delivered(self) -> Counter[tuple[str, str]]:
        """How often each destination has accepted each key."""
        told = ((request, status) for request, status in self.fleet.receiver.answered)
        return Counter((request.path.strip("/"), request.id) for request, status in told if status == 200)

    async def arrives(self, name: str, more: int = 20) -> None:
        """Until so many more have arrived at that destination."""
        least = self._arrived(name) + more
        await eventually(lambda: self._arrived(name) >= least, f"{least} deliveries at {name}")

    def _arrived(self, name: str) -> int:
        return sum(to == name for to, _ in self.delivered)

    async def snapshot(self, name: str) -> Snapshot:
        """A destination at this instant; its ledger is exact."""
        redis = connect.client(settings.Redis(url=self.fleet.server.url, timeout=Duration(10)))
        try:
            seen = await snapshot(redis, NAMESPACE, name)
        finally:
            await redis.aclose(close_connection_pool=True)
        assert seen.unaccounted == 0, seen
        return seen

    async def all_is_where_it_belongs(self, *names: str, waiting: tuple[str, ...] = ()) -> None:
        """Until nothing is left for `names`; all that was acknowledged arrived, once, or is in `waiting`."""
        for name in names:
            await eventually(self.empty(name), f"nothing left for {name}")
        missing = self.acknowledged - self.delivered.keys()
        waits = {name: (await self.snapshot(name)).depth for name in waiting}
        assert Counter(name for name, _ in missing) == Counter(waits)
        assert set(self.delivered.values()) <= {1}
        for name in (*names, *waiting):
            ledger = (await self.snapshot(name)).ledger
            accepted = sum(to == name for to, _ in self.acknowledged)
            delivered = accepted - waits.get(name, 0)
            assert ledger == Ledger(accepted=accepted, delivered=delivered), name

    def empty(self, name: str) -> Callable[[], Awaitable[bool]]:
        """Asks whether nothing is left there."""

        async def empty() -> bool:
            return (await self.snapshot(name)).depth == 0

        return empty


@pytest.fixture
async def rollout(fleets: Fleets, valkey: Server) -> Rollout:
    return Rollout(await fleets(valkey))


async def test_routes_change_under_load(rollout: Rollout) -> None:
    both = rollout.content("one", "two", routes=[{"to": ["one"]}])
    ingest = await rollout.ingest("ingest.yaml", both)
    await rollout.dispatcher("dispatcher.yaml", both)
    async with rollout.load(ingest), rollout.ready(ingest):
        await rollout.arrives("one")
        assert await rollout.reload(ingest, "ingest.yaml", {**both, "routes": [{"to": ["two"]}]}) == "routes"
        assert (await rollout.post(ingest))[1] == ["two"]
        await rollout.arrives("two")
    await rollout.all_is_where_it_belongs("one", "two")


async def test_a_request_under_way_ends_with_what_it_began_with(rollout: Rollout) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        begun.set()  # ingest has said that it reads
        await release.wait()
        yield json.dumps(rollout.fleet.alert()).encode()

    both = rollout.content("one", "two", routes=[{"to": ["one"]}])
    ingest = await rollout.ingest("ingest.yaml", both)
    headers = {"Content-Type": "application/json"}
    posting = rollout.fleet.http.post(ingest.url + "/v1/alerts", data=body(), headers=headers, expect100=True)
    posted = asyncio.create_task(acknowledgement(posting))
    async with asyncio.timeout(DEADLINE):
        await begun.wait()
        await rollout.reload(ingest, "ingest.yaml", {**both, "routes": [{"to": ["two"]}]})
        assert (await rollout.post(ingest))[1] == ["two"]
        release.set()
        assert (await posted)["destinations"] == ["one"]


async def acknowledgement(posting: AbstractAsyncContextManager[aiohttp.ClientResponse]) -> Content:
    """The body of the answer, which is 201."""
    async with posting as answer:
        told: Content = await answer.json()
        assert answer.status == 201, told
        return told


async def test_rules_and_limits_change_without_a_signal(rollout: Rollout) -> None:
    """The file alone is enough."""
    content = rollout.content("one")
    ingest = await rollout.ingest("ingest.yaml", content)
    reading = {"host": "db1", "metric": "disk", "value": 100}
    async with rollout.fleet.http.post(ingest.url + "/v1/readings", json=reading) as answer:
        assert (await answer.json())["alerts"] == []
    rule = {"name": "disk-full", "metric": "disk", "when": ">= 100"}
    rollout.put(
        "ingest.yaml", {**content, "rules": [rule], "ingest": {**content["ingest"], "max_alert": "1KiB"}}
    )
    await ingest.process.wait_line('"event":"config_reloaded"')
    [line] = ingest.lines("config_reloaded")
    assert line["changes"] == "ingest.max_alert, rules.disk-full added"
    async with rollout.fleet.http.post(ingest.url + "/v1/readings", json=reading) as answer:
        [alert] = (await answer.json())["alerts"]
        assert alert["destinations"] == ["one"]
    alert = {**rollout.fleet.alert(), "summary": "x" * 2000}
    async with rollout.fleet.http.post(ingest.url + "/v1/alerts", json=alert) as answer:
        assert answer.status in (400, 413)


async def test_a_rolling_update_loses_nothing(rollout: Rollout) -> None:
    """One destination is added, one changed, one renamed and one removed, replica by replica, under load."""
    rollout.dispatcher_section = {"visibility_timeout": "60s"}  # nobody is taken for dead on a busy machine
    old = rollout.content("kept", "changed", "before", "gone")
    new = rollout.content("kept", "changed", "after", "fresh")
    new["destinations"][1]["headers"] = {"x-new": "1"}
    ingests = [await rollout.ingest(f"i{n}.yaml", old) for n in (1, 2)]
    dispatchers = [await rollout.dispatcher(f"d{n}.yaml", old) for n in (1, 2)]
    first, second = dispatchers
    async with rollout.load(*ingests), rollout.ready(*ingests, *dispatchers):
        await rollout.arrives("gone")
        await rollout.reload(ingests[0], "i1.yaml", new)  # fresh and after wait for a dispatcher
        told = await rollout.reload(first, "d1.yaml", new)
        assert told == (
            "destinations.changed, destinations.before removed, destinations.gone removed, "
            "destinations.after added, destinations.fresh added, routes"
        )
        assert await first.metric("redispatch_attempts_total", destination="fresh", outcome="failed") == 0
        for name in ("kept", "changed", "after", "fresh", "before", "gone"):
            await rollout.arrives(name)  # before and gone through the other dispatcher
        await rollout.reload(second, "d2.yaml", new)
        for dispatcher in dispatchers:  # the other ingest still sends there, and nobody reads it
            for name in ("before", "gone"):
                await dispatcher.wait_metric("redispatch_destination_removed", 1, destination=name)
                await dispatcher.wait_metric("redispatch_queue_depth", 1, destination=name)
        await rollout.reload(ingests[1], "i2.yaml", new)
        await rollout.arrives("changed")
        latest = [request for request, _ in rollout.fleet.receiver.answered if request.path == "/changed"][-1]
        assert latest.headers["x-new"] == "1"
    await rollout.all_is_where_it_belongs("kept", "changed", "after", "fresh", waiting=("before", "gone"))
    back = rollout.content("kept", "changed", "after", "fresh", "before", "gone")
    await rollout.reload(first, "d1.yaml", back)
    await rollout.all_is_where_it_belongs("kept", "changed", "after", "fresh", "before", "gone")
    assert await first.metric("redispatch_destination_removed") == 0


async def test_a_broken_file_is_refused(rollout: Rollout) -> None:
    good = rollout.content("one")
    broken = {**good, "routes": [{"to": ["nobody"]}]}
    ingest = await rollout.ingest("ingest.yaml", good)
    dispatcher = await rollout.dispatcher("dispatcher.yaml", good)
    services = ((ingest, "ingest.yaml"), (dispatcher, "dispatcher.yaml"))
    for service, file in services:
        assert await service.metric("redispatch_config_reload_failed") == 0
        line = await rollout.change(service, file, broken, "config_refused")
        assert f"{file}" in line["faults"]
        assert "no destination is called nobody" in line["faults"]
        await service.wait_metric("redispatch_config_reload_failed", 1)
    await rollout.post(ingest)
    await rollout.all_is_where_it_belongs("one")
    for service, file in services:
        line = await rollout.change(service, file, good, "config_reloaded")
        assert line["changes"] == "nothing"
        assert await service.metric("redispatch_config_reload_failed") == 0
        assert len(service.lines("config_refused")) == 1


def idle(fleet: Fleet, name: str) -> list[tuple[str, int, int]]:
    """Consumer, ms since it was last kept alive, and delivery count of all that is pending."""
    stream = keys.stream(NAMESPACE, name)
    told = fleet.server.cli("XPENDING", stream, keys.GROUP, "-", "+", 100)
    return [(consumer, silent, deliveries) for _, consumer, silent, deliveries in told]


async def kept_alive(fleet: Fleet, name: str, times: int) -> None:
    """Until the one entry that is pending was refreshed so often."""
    last, seen = 0, 0

    def refreshed() -> bool:
        nonlocal last, seen
        [(_, silent, _)] = idle(fleet, name)
        seen += silent < last
        last = silent
        return seen >= times

    await eventually(refreshed, f"{times} times kept alive")


async def test_what_is_in_flight_ends_with_the_lane_that_began_it(
    rollout: Rollout, receiver: Receiver
) -> None:
    """It is kept alive until it is settled, and its successor begins only then."""
    release = asyncio.Event()
    receiver.answers.append(Answer(until=release))
    rollout.destination = {"timeout": "60s"}
    rollout.dispatcher_section = {"visibility_timeout": "5s"}  # nobody stands still for so long unasked
    old = rollout.content("one")
    ingest = await rollout.ingest("ingest.yaml", old)
    dispatcher = await rollout.dispatcher("dispatcher.yaml", old)
    other = await rollout.dispatcher("other.yaml", rollout.content("two"))
    held, _ = await rollout.post(ingest)
    await receiver.wait_for(1)
    new = rollout.content("one")
    new["destinations"][0]["headers"] = {"x-new": "1"}
    assert await rollout.reload(dispatcher, "dispatcher.yaml", new) == "destinations.one"
    await rollout.reload(other, "other.yaml", new)  # somebody who would take it over
    await kept_alive(rollout.fleet, "one", 4)  # at a third of the visibility timeout each
    assert [told[0::2] for told in idle(rollout.fleet, "one")] == [(dispatcher.consumer, 1)]
    release.set()
    await rollout.arrives("one", 1)
    await other.process.stop()
    await rollout.post(ingest)
    await rollout.all_is_where_it_belongs("one")
    assert [request.headers.get("x-new") for request in receiver.requests] == [None, "1"]
    assert receiver.requests[0].id == held


async def test_an_attempt_that_does_not_end_is_left_to_the_successor(
    rollout: Rollout, receiver: Receiver
) -> None:
    receiver.answers.append(Answer(until=asyncio.Event()))
    rollout.dispatcher_section = {"drain_timeout": "100ms"}
    old = rollout.content("one")
    ingest = await rollout.ingest("ingest.yaml", old)
    dispatcher = await rollout.dispatcher("dispatcher.yaml", old)
    held, _ = await rollout.post(ingest)
    await receiver.wait_for(1)
    new = rollout.content("one")
    new["destinations"][0]["headers"] = {"x-new": "1"}
    await rollout.reload(dispatcher, "dispatcher.yaml", new)
    await dispatcher.process.wait_line('"event":"drain_incomplete"')
    await rollout.all_is_where_it_belongs("one")
    assert [(request.id, request.headers.get("x-new")) for request in receiver.requests] == [
        (held, None),
        (held, "1"),
    ]


async def test_sigterm_in_the_middle_of_a_reload(rollout: Rollout, receiver: Receiver) -> None:
    """The old lane still drains, the new one has not begun."""
    release = asyncio.Event()
    receiver.answers.append(Answer(until=release))
    rollout.destination = {"timeout": "60s"}
    old = rollout.content("one")
    ingest = await rollout.ingest("ingest.yaml", old)
    dispatcher = await rollout.dispatcher("dispatcher.yaml", old)
    await rollout.post(ingest)
    await receiver.wait_for(1)
    new = rollout.content("one", "two")
    new["destinations"][0]["headers"] = {"x-new": "1"}
    await rollout.reload(dispatcher, "dispatcher.yaml", new)
    await rollout.post(ingest)  # nobody takes it
    dispatcher.process.signal(signal.SIGTERM)
    await dispatcher.process.wait_line('"event":"draining"')
    release.set()
    assert await dispatcher.process.wait_exit() == 0
    assert not dispatcher.lines("drain_incomplete")
    seen = await rollout.snapshot("one")
    assert (seen.ledger.delivered, seen.depth, seen.in_flight, seen.consumers) == (1, 1, 0, 0)


async def test_what_waits_for_a_restart(rollout: Rollout) -> None:
    content = rollout.content("one")
    for service, file in (
        (await rollout.ingest("ingest.yaml", content), "ingest.yaml"),
        (await rollout.dispatcher("dispatcher.yaml", content), "dispatcher.yaml"),
    ):
        other = {**content, "redis": {**content["redis"], "namespace": "other"}}
        line = await rollout.change(service, file, other, "config_waits_for_restart")
        assert line["settings"] == "redis.namespace"
        assert await service.status("/readyz") == 200


async def test_changes_one_after_the_other_lose_and_leak_nothing(rollout: Rollout) -> None:
    """Faster than lanes can follow, without and with an end in between; connections are given back."""
    content = rollout.content("one", "two")
    ingest = await rollout.ingest("ingest.yaml", content)
    dispatcher = await rollout.dispatcher("dispatcher.yaml", content)

    def clients() -> int:
        return len(str(rollout.fleet.server.cli("CLIENT", "LIST")).splitlines())

    async with rollout.load(ingest):
        for name in ("one", "two"):  # so that each lane has made its connections
            await rollout.arrives(name)
        before = clients()
        for n in range(10):
            names = ("one", "two") if n % 3 else ("two",)
            changed = rollout.content(*names, routes=[{"to": ["one", "two"]}] if n % 3 else [{"to": ["two"]}])
            changed["destinations"][0]["headers"] = {"x-number": str(n)}
            await rollout.reload(dispatcher, "dispatcher.yaml", changed)
        await rollout.reload(dispatcher, "dispatcher.yaml", content)
        await rollout.arrives("one")
    await rollout.all_is_where_it_belongs("one", "two")
    await eventually(lambda: clients() <= before + 2, f"{before} connections, and perhaps two that are spare")


async def test_a_reload_while_redis_stands_still(fleets: Fleets, new_server: Callable[..., Server]) -> None:
    rollout = Rollout(await fleets(new_server()))
    rollout.patience = "800ms"
    rollout.dispatcher_section = {"drain_timeout": "500ms"}
    content = rollout.content("one")
    ingest = await rollout.ingest("ingest.yaml", content)
    dispatcher = await rollout.dispatcher("dispatcher.yaml", content)
    await rollout.post(ingest)
    await rollout.arrives("one", 1)
    rollout.fleet.server.freeze()
    both = rollout.content("one", "two")
    both["destinations"][0]["headers"] = {"x-new": "1"}
    await rollout.reload(dispatcher, "dispatcher.yaml", both)
    await rollout.reload(ingest, "ingest.yaml", both)
    assert await dispatcher.status("/readyz") == 200
    rollout.fleet.server.thaw()
    for _ in range(5):
        await eventually(lambda: rollout.posted(ingest), "Redis")
    assert len(rollout.acknowledged) == 11  # perhaps one a second time: its settlement was under way
    await eventually(lambda: rollout.acknowledged <= rollout.delivered.keys(), "all of them")
    for name in ("one", "two"):
        await eventually(rollout.empty(name), f"nothing left for {name}")

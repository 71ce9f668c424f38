"""Lanes that come, change and go in one process, against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from common.keys import GROUP
from common.reload import Refused
from common.settings import Destination, Settings
from common.units import Duration
from dispatcher.destinations.base import DestinationType, Unusable
from dispatcher.destinations.kinds import make
from dispatcher.lanes import Lanes, Life
from dispatcher.metrics import Metrics
from dispatcher.quarantine import Quarantine
from dispatcher.replica import Clock, Pulse, Replica
from tests.support.servers import Server
from tests.support.settings import build

DEADLINE = 30.0


class Kinds:
    """Makes destinations, but for those that are named; remembers which of them are open."""

    def __init__(self) -> None:
        self.faults: dict[str, Exception] = {}
        self.open: list[str] = []
        self._make = make

    def make(self, destination: Destination) -> DestinationType:
        if destination.name in self.faults:
            raise self.faults[destination.name]
        made = self._make(destination)
        self.open.append(destination.name)
        close = made.close

        async def closed() -> None:
            self.open.remove(destination.name)
            await close()

        made.close = closed  # type: ignore[method-assign]
        return made


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> Kinds:
    made = Kinds()
    monkeypatch.setattr("dispatcher.deliver.make", made.make)
    return made


@pytest.fixture
async def lanes(valkey: Server, connected: Callable[[Server], Redis]) -> AsyncIterator[Lanes]:
    """None yet; drained in the end."""
    async with asyncio.TaskGroup() as tasks:
        made = Lanes(
            Replica(
                redis=connected(valkey),
                bell=connected(valkey),
                consumer="me",
                settings=build(valkey.url),
                metrics=Metrics(),
                quarantine=Quarantine(),
                clock=Clock(),
                pulse=Pulse(60),
                stopping=asyncio.Event(),
                tasks=tasks,
            )
        )
        yield made
        async with asyncio.timeout(DEADLINE):
            await made.drain()
    assert len(made) == 0
    assert made._shared.quarantine.wards == []


async def use(lanes: Lanes, settings: Settings) -> dict[str, Life]:
    """Go on with these; the lanes that had to be made, once they take."""
    made = await lanes.make(settings)
    lanes.use(settings, made)
    return made


def consumers(server: Server, name: str) -> list[str]:
    told = server.cli("XINFO", "CONSUMERS", f"{{redispatch:{name}}}:stream", GROUP)
    return [dict(zip(flat[::2], flat[1::2], strict=True))["name"] for flat in told]


async def test_only_what_differs_is_made_anew(lanes: Lanes, valkey: Server, kinds: Kinds) -> None:
    first = build(valkey.url, ["a", "b", "c"])
    assert list(await use(lanes, first)) == ["a", "b", "c"]
    assert await use(lanes, build(valkey.url, ["c", "b", "a"])) == {}
    changed = Destination(name="b", type="discard", timeout=Duration(1))
    assert list(await use(lanes, build(valkey.url, ["a", changed, "d"]))) == ["b", "d"]
    async with asyncio.timeout(DEADLINE):
        await lanes.begun()
    assert sorted({*kinds.open} - {"c"}) == ["a", "b", "d"]


async def test_a_removed_one_leaves_its_group(lanes: Lanes, valkey: Server) -> None:
    made = await use(lanes, build(valkey.url, ["a", "b"]))
    async with asyncio.timeout(DEADLINE):
        await lanes.begun()
        ending = lanes._last["b"]
        await use(lanes, build(valkey.url, ["a"]))
        await ending
    assert made["b"].stopping.is_set()
    assert not made["a"].stopping.is_set()
    assert consumers(valkey, "b") == []
    assert len(lanes) == 1


async def test_changes_that_follow_each_other_quickly(lanes: Lanes, valkey: Server, kinds: Kinds) -> None:
    """Each waits for the one before it, and only the last goes on."""
    lives: list[Life] = []
    for seconds in (1, 2, 3, 4):
        changed = Destination(name="a", type="discard", timeout=Duration(seconds))
        lives += (await use(lanes, build(valkey.url, [changed]))).values()
    await use(lanes, build(valkey.url, []))
    lives += (await use(lanes, build(valkey.url, ["a"]))).values()
    async with asyncio.timeout(DEADLINE):
        await lanes.begun()
    assert [life.stopping.is_set() for life in lives] == [True] * 4 + [False]
    assert lanes._shared.quarantine.wards == [lives[-1].lane]
    assert kinds.open == ["a"]
    assert len(lanes) == 1


@pytest.mark.parametrize("fault", [Unusable("it has no end"), RuntimeError("it has no end")])
async def test_one_that_cannot_be_made_refuses_all(
    lanes: Lanes, valkey: Server, kinds: Kinds, fault: Exception
) -> None:
    before = build(valkey.url, ["a", "b"])
    await use(lanes, before)
    kinds.faults["bad"] = fault
    changed = Destination(name="b", type="discard", timeout=Duration(1))
    with pytest.raises(Refused if isinstance(fault, Unusable) else RuntimeError, match="it has no end"):
        await lanes.make(build(valkey.url, ["new", changed, "bad"]))
    assert sorted(kinds.open) == ["a", "b"]
    assert await lanes.make(before) == {}
    assert not any(life.stopping.is_set() for life in lanes._lives.values())


@pytest.mark.parametrize("section", ["queue", "dedupe", "dispatcher"])
async def test_settings_that_lanes_work_with_make_them_anew(
    lanes: Lanes, valkey: Server, section: str
) -> None:
    await use(lanes, build(valkey.url, ["a"]))
    values: dict[str, dict[str, Any]] = {
        "queue": {"max_dead": 7},
        "dedupe": {"remember": Duration(7)},
        "dispatcher": {"max_deliveries": 7},
    }
    other = type(getattr(Settings(), section))(**values[section])
    assert list(await use(lanes, build(valkey.url, ["a"], **{section: other}))) == ["a"]

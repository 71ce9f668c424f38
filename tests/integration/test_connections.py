"""More connections than there is room for, and ones that are closed just when a request comes."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator

import pytest

from common import connections, listen
from common.connections import RESERVE, WANTED, room
from common.settings import Ingest
from tests.support.ingest import Served, served
from tests.support.raw import Wire

BODY = b'{"host":"web-1","name":"disk-full","timestamp":1772439277}'
HEAD = b"POST /v1/alerts HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
REQUEST = HEAD % len(BODY) + BODY


@pytest.fixture
async def small(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    """With room for three."""
    monkeypatch.setattr(listen, "room", lambda: 3)
    monkeypatch.setattr(connections, "QUIET", 3600.0)
    async with served(Ingest()) as made:
        yield made


async def opened(site: Served) -> Wire:
    """A connection that has had an answer."""
    wire = await Wire(site.address).__aenter__()
    await ask(wire)
    return wire


async def ask(wire: Wire) -> None:
    wire.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await wire.reply()).status == 200


async def close(*wires: Wire) -> None:
    for wire in wires:
        await wire.__aexit__(None, None, None)


async def test_the_longest_idle_gives_way(small: Served, caplog: pytest.LogCaptureFixture) -> None:
    first, second, third = [await opened(small) for _ in range(3)]
    await ask(first)  # and so the second has been idle for longest
    fourth, fifth = await opened(small), await opened(small)
    assert await second.closed()
    assert await third.closed()
    for wire in (first, fourth, fifth):
        await ask(wire)
    assert caplog.messages.count("connections_full") == 1
    await close(first, second, third, fourth, fifth)


async def test_one_that_never_said_anything_or_never_gets_done_with_its_head_gives_way(small: Served) -> None:
    silent = await Wire(small.address).__aenter__()
    dripping = await Wire(small.address).__aenter__()
    dripping.send(REQUEST[:30])
    rest = [await opened(small) for _ in range(3)]
    assert await silent.closed()
    assert await dripping.closed()
    await close(silent, dripping, *rest)


async def test_one_at_work_does_not(small: Served) -> None:
    small.memory.hold = asyncio.Event()
    busy = []
    for _ in range(3):
        wire = await Wire(small.address).__aenter__()
        wire.send(REQUEST)
        await small.memory.begun.wait()
        small.memory.begun.clear()
        busy.append(wire)
    late = await Wire(small.address).__aenter__()
    assert await late.closed()
    await close(late)
    small.memory.hold.set()
    assert [(await wire.reply()).status for wire in busy] == [201, 200, 200]
    late = await opened(small)
    await ask(late)
    await close(late, *busy)


async def test_ones_that_are_gone_are_not_counted(small: Served, caplog: pytest.LogCaptureFixture) -> None:
    keeps = await opened(small)
    for _ in range(10):
        wire = await opened(small)
        wire.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await wire.reply()).status == 200
        assert await wire.closed()
        await close(wire)
        await ask(keeps)
    assert "connections_full" not in caplog.messages
    await close(keeps)


@pytest.mark.parametrize(
    ("soft", "hard", "after", "most"),
    [
        (1024, 524_288, WANTED, WANTED - RESERVE),
        (1024, 4096, 4096, 4096 - RESERVE),
        (1024, resource.RLIM_INFINITY, WANTED, WANTED - RESERVE),
        (100_000, 524_288, None, 100_000 - RESERVE),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, WANTED - RESERVE),
        (256, 256, None, 256 - RESERVE),
        (16, 16, None, 1),
    ],
)
def test_room(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    soft: int,
    hard: int,
    after: int | None,
    most: int,
) -> None:
    told: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: told.append((which, limits)))
    assert room() == most
    assert told == ([] if after is None else [(resource.RLIMIT_NOFILE, (after, hard))])
    assert ("few_connections" in caplog.messages) == (most < connections.FEW)


async def test_a_request_that_meets_the_end_of_its_connection_is_answered_or_never_taken() -> None:
    """The client sends about when the server gives an idle connection up, on one side of it or the other."""
    idle, answered, lost = 0.05, 0, 0
    async with served(Ingest(), keepalive=idle) as site:
        for turn in range(60):
            async with Wire(site.address) as wire:
                try:
                    await ask(wire)
                    await asyncio.sleep(idle + (turn % 13 - 6) / 1000)  # the pause is what is tried
                    wire.send(REQUEST)
                    assert (await wire.reply()).status in (200, 201)
                    answered += 1
                except (asyncio.IncompleteReadError, ConnectionError):
                    lost += 1
        assert len(site.memory.events) == answered
    assert answered + lost == 60


def test_idle_connections_stay_longer_than_senders_pause() -> None:
    assert listen.KEEPALIVE > 60

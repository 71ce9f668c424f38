"""Answers that no decent server gives: each has an outcome, within the timeout, and harms no next attempt."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest

from common.outcomes import Outcome, OutcomeKind
from common.units import Duration
from dispatcher.destinations import post
from dispatcher.destinations.post import Answer, Poster
from tests.support.deliveries import webhook
from tests.support.raw import OK, Handler, RawRequest, RawServer, answering

DEADLINE = 30.0
UNREADABLE = (OutcomeKind.FAILED, None)
DELIVERED = (OutcomeKind.DELIVERED, 200)
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

# What comes in one piece. When a status line and what is wrong after it come together, the parser tells of
# the fault alone: a success that can't be told from a failure is a failure.
WHOLE: dict[str, tuple[bytes, tuple[OutcomeKind, int | None]]] = {
    "hints first": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK,
        DELIVERED,
    ),
    "another protocol": (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        (OutcomeKind.FAILED, 101),
    ),
    "status 999": (b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", (OutcomeKind.FAILED, 999)),
    "status 000": (b"HTTP/1.1 000 Odd\r\nContent-Length: 0\r\n\r\n", (OutcomeKind.FAILED, 0)),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", DELIVERED),
    "an answer too many": (OK + b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", DELIVERED),
    "204 with a body": (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", UNREADABLE),
    "a broken chunk": (CHUNKED + b"ZZZ\r\nabc\r\n", UNREADABLE),
    "a chunk of 2**76": (CHUNKED + b"fffffffffffffffffff\r\nabc\r\n", UNREADABLE),
    "two lengths": (HEAD + b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n", UNREADABLE),
    "a negative length": (HEAD + b"Content-Length: -5\r\n\r\n", UNREADABLE),
    "a NUL in a header": (HEAD + b"X: a\x00b\r\nContent-Length: 2\r\n\r\nok", UNREADABLE),
    "many headers": (HEAD + b"X: 1\r\n" * 500 + b"Content-Length: 0\r\n\r\n", UNREADABLE),
    "no HTTP": (b"220 mail.example ESMTP\r\n", UNREADABLE),
    "HTTP/2": (b"HTTP/2 200 OK\r\n\r\n", UNREADABLE),
}


async def attempt(handler: Handler, times: int = 1, **settings: Any) -> list[Outcome]:
    async with RawServer(handler) as server, asyncio.timeout(DEADLINE):
        poster = Poster(webhook(server.url, **settings))
        outcomes = [await poster.post(b"{}", {}) for _ in range(times)]
        await poster.close()
    return outcomes


@pytest.mark.parametrize(("raw", "told"), WHOLE.values(), ids=list(WHOLE))
async def test_in_one_piece(raw: bytes, told: tuple[OutcomeKind, int | None]) -> None:
    outcomes = await attempt(answering(raw), times=3)
    assert [(outcome.kind, outcome.status) for outcome in outcomes] == [told] * 3


@pytest.mark.parametrize("rest", [b"ZZZ\r\nabc\r\n", b"5\r\nab", b"fffffffffffffffffff\r\n"])
async def test_a_status_that_was_read_counts_whatever_follows(
    monkeypatch: pytest.MonkeyPatch, rest: bytes
) -> None:
    read = asyncio.Event()

    async def beginning(arriving: post._Arriving, most: int) -> None:
        read.set()
        await real(arriving, most)

    async def handle(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        await read.wait()
        writer.write(rest)
        writer.close()

    real = post._Arriving.read
    monkeypatch.setattr(post._Arriving, "read", beginning)
    # aiohttp does not tell the body's reader that a chunk was broken: it waits until the time is over.
    outcomes = await attempt(handle, timeout=Duration(1))
    assert outcomes == [Outcome(OutcomeKind.DELIVERED, 200)]


async def test_hints_without_end_cost_the_timeout() -> None:
    async def handle(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    [outcome] = await attempt(handle, timeout=Duration(0.2))
    assert outcome.kind is OutcomeKind.TIMEOUT


@pytest.mark.parametrize("part", [b"HTTP/1.1 200 OK\r\n", b"X: 1\r\n"])
async def test_a_head_that_comes_in_drops_costs_the_timeout(part: bytes) -> None:
    async def handle(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"" if part.startswith(b"HTTP") else HEAD)
        for byte in part * 1000:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.05)

    [outcome] = await attempt(handle, timeout=Duration(0.2))
    assert outcome.kind is OutcomeKind.TIMEOUT


async def test_a_body_that_comes_in_drops_is_cut_by_the_timeout() -> None:
    async def handle(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 No\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    [outcome] = await attempt(handle, timeout=Duration(1))
    assert (outcome.kind, outcome.status) == (OutcomeKind.FAILED, 500)
    assert set(outcome.error.removeprefix("HTTP 500: ")) == {"x"}


@pytest.mark.parametrize(("read", "got"), [(4096, 4096), (100_000, 100_000), (1_000_000, 300_000)])
async def test_as_much_of_an_answer_as_was_asked_for(read: int, got: int) -> None:
    raw = HEAD + b"Content-Length: 300000\r\n\r\n" + b"x" * 300_000
    async with RawServer(answering(raw)) as server, asyncio.timeout(DEADLINE):
        poster = Poster(webhook(server.url), read=read)
        answered = await poster.exchange(b"{}", {})
        await poster.close()
    assert isinstance(answered, Answer)
    assert (len(answered.body), answered.whole) == (got, read > 300_000)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity, gzip"])
async def test_nothing_is_unpacked(encoding: str) -> None:
    bomb = gzip.compress(b"0" * 20_000_000)
    raw = HEAD + f"Content-Encoding: {encoding}\r\nContent-Length: {len(bomb)}\r\n\r\n".encode() + bomb
    async with RawServer(answering(raw)) as server, asyncio.timeout(DEADLINE):
        poster = Poster(webhook(server.url), read=2**20)
        answered = await poster.exchange(b"{}", {})
        await poster.close()
    assert isinstance(answered, Answer)
    assert (answered.body, answered.whole) == (bomb, True)


LISTS: list[tuple[int, dict[str, list[int]], OutcomeKind]] = [
    (404, {"gate_on": [401], "retry_on": [404]}, OutcomeKind.FAILED),
    (404, {"gate_on": [401]}, OutcomeKind.REJECTED),
    (402, {"gate_on": [402]}, OutcomeKind.GONE),
    (409, {"retry_on": []}, OutcomeKind.REJECTED),
    (429, {"retry_on": []}, OutcomeKind.REJECTED),
    (429, {"retry_on": [], "gate_on": [429]}, OutcomeKind.GONE),
    (501, {"reject_on": [501]}, OutcomeKind.REJECTED),
    (503, {"reject_on": [503]}, OutcomeKind.REJECTED),
    (503, {"gate_on": [503]}, OutcomeKind.GONE),
    (503, {"retry_on": [503]}, OutcomeKind.THROTTLED),
    (302, {"reject_on": [302]}, OutcomeKind.REJECTED),
    (500, {"retry_on": [], "gate_on": []}, OutcomeKind.FAILED),
]


@pytest.mark.parametrize(("status", "lists", "kind"), LISTS)
async def test_a_destinations_own_lists(status: int, lists: dict[str, Any], kind: OutcomeKind) -> None:
    raw = f"HTTP/1.1 {status} X\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n".encode()
    [outcome] = await attempt(answering(raw), **lists)
    assert (outcome.kind, outcome.status) == (kind, status)
    assert outcome.retry_after == (7.0 if kind is OutcomeKind.THROTTLED else None)

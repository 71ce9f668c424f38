"""Requests that are framed wrongly, never end, or want to become something else; and bombs, at full size."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import sys
import zlib
from collections.abc import AsyncIterator

import pytest

from common.settings import Ingest
from common.units import Size
from ingest import arrive, receive
from tests.support.ingest import Served, served
from tests.support.raw import Wire

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BODY = b'{"host":"web-1","name":"disk-full","timestamp":1772439277}'
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
START = b"POST /v1/alerts HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
PLAIN = START + LENGTH + b"\r\n" + BODY
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


@pytest.fixture
async def site() -> AsyncIterator[Served]:
    async with served(Ingest(), patience=2) as made:
        yield made


@pytest.fixture
async def wire(site: Served) -> AsyncIterator[Wire]:
    async with Wire(site.address) as made:
        yield made


@pytest.mark.parametrize(
    "request_",
    [
        START + LENGTH + CHUNKED + b"\r\n" + CHUNKS,
        START + CHUNKED + LENGTH + b"\r\n" + CHUNKS,
        START + LENGTH + b"Content-Length: 1\r\n\r\n" + BODY,
        START + b"Content-Length: -1\r\n\r\n" + BODY,
        START + b"Content-Length: +58\r\n\r\n" + BODY,
        START + b"Content-Length: 0x3a\r\n\r\n" + BODY,
        START + b"Content-Length: 58, 58\r\n\r\n" + BODY,
        START + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n" + BODY,
        START + b"Transfer-Encoding: gzip\r\n\r\n" + BODY,
        START + b"Transfer-Encoding: chunked, identity\r\n\r\n" + CHUNKS,
        START + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS,
        START + b" Transfer-Encoding: chunked\r\n\r\n" + CHUNKS,
        START + CHUNKED + b"\r\n-1\r\n",
        START + CHUNKED + b"\r\n" + b"f" * 17 + b"\r\n",
        START + b"X: a\x00b\r\n" + LENGTH + b"\r\n" + BODY,
        START + b"X\r\n" + LENGTH + b"\r\n" + BODY,
        START + b"X: " + b"y" * 9000 + b"\r\n" + LENGTH + b"\r\n" + BODY,
        START + b"X: y\r\n" * 200 + LENGTH + b"\r\n" + BODY,
        b"POST /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /v1/alerts HTTP/9.9\r\nHost: x\r\n\r\n",
        b"PO ST /v1/alerts HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    ],
)
async def test_wrong_framing_is_400_stores_nothing_and_ends_the_connection(
    site: Served, wire: Wire, request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """What follows might be read as another request otherwise, by us or by a proxy before us."""
    wire.send(request_, PLAIN)
    told = await wire.rest()
    assert told.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
    assert told.count(b"\r\nDate: ") == 1
    assert told.count(b"\r\nContent-Type: application/problem+json\r\n") == 1
    assert json.loads(told.partition(b"\r\n\r\n")[2])["detail"].startswith("can't be read as HTTP: ")
    assert site.memory.events == []
    told_of = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert {record.message for record in told_of} <= {"unreadable"}


@pytest.mark.parametrize(
    "more",
    [
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n",
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
        b"Connection: keep-alive, x\r\n",
        b"TE: trailers\r\n",
    ],
)
async def test_who_would_rather_speak_something_else_is_answered_in_http_1(wire: Wire, more: bytes) -> None:
    wire.send(START + more + LENGTH + b"\r\n" + BODY)
    assert (await wire.reply()).status == 201


async def test_chunks_with_extensions_and_trailers_are_fine(site: Served, wire: Wire) -> None:
    wire.send(START + CHUNKED + b"\r\n%x;a=b\r\n%b\r\n0\r\nX: y\r\n\r\n" % (len(BODY), BODY), PLAIN)
    assert [(await wire.reply()).status for _ in range(2)] == [201, 200]


async def test_other_methods_are_refused(wire: Wire) -> None:
    for method in (b"GET", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"PATCH"):
        wire.send(PLAIN.replace(b"POST", method))
        assert (await wire.reply()).status == 405


async def test_a_head_that_never_ends_is_given_up() -> None:
    async with served(Ingest(), keepalive=0.05) as site, Wire(site.address) as wire:
        wire.send(PLAIN[:40])
        assert await wire.closed()


async def test_slow_bodies_hold_up_nobody_else(site: Served) -> None:
    slow = [Wire(site.address) for _ in range(100)]
    for wire in slow:
        await wire.__aenter__()
        wire.send(PLAIN[:-1])
    async with Wire(site.address) as quick:
        quick.send(PLAIN)
        assert (await quick.reply()).status == 201
    for wire in slow:
        assert (await wire.reply()).status == 408
        await wire.__aexit__(None, None, None)
    assert len(site.memory.events) == 1


def unsized(data: bytes) -> bytes:
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.content_size_flag: 0})
    return packer.compress(data) + packer.flush()


ZEROS = bytes(20_000_000)
BOMBS = {
    "gzip": (b"gzip", gzip.compress(ZEROS)),
    "deflate": (b"deflate", zlib.compress(ZEROS)),
    "zstd": (b"zstd", zstd.compress(ZEROS)),
    "zstd that does not tell": (b"zstd", unsized(ZEROS)),
}


@pytest.mark.parametrize("kind", BOMBS)
async def test_bombs_are_refused_while_others_are_served(
    site: Served, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    encoding, body = BOMBS[kind]
    monkeypatch.setattr(receive, "PENANCE", 0.05)
    head = START + b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (encoding, len(body))
    bombers = [Wire(site.address) for _ in range(3)]
    for wire in bombers:
        await wire.__aenter__()
        wire.send(head, body)
    async with Wire(site.address) as other:
        for status in (201, 200, 200):
            other.send(PLAIN)
            assert (await other.reply()).status == status
    async with asyncio.timeout(30):
        for wire in bombers:
            assert (await wire.reply()).status == 413
            wire.send(PLAIN)
            assert (await wire.reply()).status == 200
            await wire.__aexit__(None, None, None)
    assert len(site.memory.events) == 3 + len(bombers)


async def test_what_all_bodies_hold_together_is_bounded_and_small_ones_get_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrive, "HELD", 1)
    lines = START.replace(b"application/json", b"application/x-ndjson")
    large = lines + b"Content-Length: 100000\r\n\r\n" + b" " * 70_000
    rest = b"\n" * (30_000 - len(BODY)) + BODY
    async with served(Ingest(max_body=Size(100_000)), patience=60) as site, Wire(site.address) as first:
        for _ in range(2):
            first.send(large)
            await held(site, 70_000)
            async with Wire(site.address) as second:
                second.send(large)
                reply = await second.reply()
                assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
            async with Wire(site.address) as small:
                small.send(PLAIN[:-1])
                await held(site, 70_000 + len(BODY) - 1)
                small.send(PLAIN[-1:])
                assert (await small.reply()).status in (200, 201)
            first.send(rest)
            assert (await first.reply()).status in (200, 201)
            await held(site, 0)


async def held(site: Served, size: int) -> None:
    """Until so many bytes are held."""
    async with asyncio.timeout(30):
        while site.arrivals.held != size:  # noqa: ASYNC110 - a number that nobody announces
            await asyncio.sleep(0.005)

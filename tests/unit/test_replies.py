"""Replies that are parsed as they come: in pieces, too few of them, after an end, or none at all."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import hiredis
import pytest
from redis import exceptions as errors
from redis._parsers.base import AsyncBaseParser
from redis._parsers.hiredis import NOT_ENOUGH_DATA

from common.replies import Replies, heard

LONG = 60.0  # seconds


class Line:
    """A stream of the kind that redis-py makes, over a pair of sockets; `server` is its other end."""

    def __init__(self) -> None:
        self.own, self.server = socket.socketpair()
        self.parser: Any = hiredis.Reader(
            protocolError=errors.InvalidResponse,
            replyError=AsyncBaseParser.parse_error,
            notEnoughData=NOT_ENOUGH_DATA,
        )
        self.replies: Replies
        self.stream: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def open(self) -> Line:
        """Connect them."""
        self.stream, self.writer = await asyncio.open_connection(sock=self.own)
        self.replies = Replies(self.writer.transport)
        return self

    def close(self) -> None:
        """Both ends."""
        self.writer.close()
        self.server.close()

    async def hears(self, count: int, *pieces: bytes) -> list[Any]:
        """What so many replies are, when these bytes come one after the other."""
        self.replies.expect(count, self.parser)
        waiting = asyncio.create_task(heard([self.replies], LONG))
        for piece in pieces:
            self.replies.data_received(piece)
        await waiting
        return self.replies.all()


@pytest.fixture
async def line() -> Any:
    opened = await Line().open()
    yield opened
    opened.close()


@pytest.fixture
async def other() -> Any:
    opened = await Line().open()
    yield opened
    opened.close()


def bytewise(told: bytes) -> Iterator[bytes]:
    return (told[n : n + 1] for n in range(len(told)))


async def test_in_pieces(line: Line) -> None:
    told = b":1\r\n$3\r\na\r\n\r\n*2\r\n:2\r\n$-1\r\n"
    assert await line.hears(3, *bytewise(told)) == [1, b"a\r\n", [2, None]]
    assert await line.hears(3, told) == [1, b"a\r\n", [2, None]]


async def test_an_error_of_one_command_is_a_reply(line: Line) -> None:
    refused, answered = await line.hears(2, b"-ERR no\r\n+OK\r\n")
    assert isinstance(refused, errors.ResponseError)
    assert (answered, line.replies.refused) == (b"OK", True)
    assert await line.hears(1, b"+OK\r\n") == [b"OK"]
    assert not line.replies.refused


async def test_what_is_no_reply(line: Line) -> None:
    with pytest.raises(errors.InvalidResponse):
        await line.hears(2, b"+OK\r\nwhat is this?\r\n")


async def test_more_than_was_asked_for(line: Line) -> None:
    """It would answer the next call."""
    assert await line.hears(1, b":1\r\n:2\r\n") == [1]
    with pytest.raises(errors.InvalidResponse, match="more than was asked for"):
        await line.hears(1, b":3\r\n")


async def test_nothing_is_asked_for(line: Line) -> None:
    line.replies.expect(0, line.parser)
    assert not line.replies.due
    assert line.replies.all() == []


async def test_what_was_wrong_first_is_told(line: Line) -> None:
    """With TLS, what comes and the end of it are often one step of the loop."""
    line.replies.expect(1, line.parser)
    line.replies.data_received(b"-LOADING it is\r\n")
    line.replies.eof_received()
    with pytest.raises(errors.BusyLoadingError):
        line.replies.all()


async def test_what_a_break_comes_of_is_kept(line: Line) -> None:
    """What is told of TLS depends on it."""
    why = ssl.SSLError(1, "certificate required")
    line.replies.expect(1, line.parser)
    line.replies.connection_lost(why)
    with pytest.raises(errors.ConnectionError, match="certificate required") as raised:
        line.replies.all()
    assert raised.value.__cause__ is raised.value.__context__ is why


async def test_an_end_before_all_came(line: Line) -> None:
    line.replies.expect(2, line.parser)
    line.server.sendall(b"+OK\r\n")
    line.server.close()
    await heard([line.replies], LONG)
    with pytest.raises(errors.ConnectionError, match="closed by server"):
        line.replies.all()
    line.replies.expect(1, line.parser)  # nor does anything come later
    await heard([line.replies], LONG)
    with pytest.raises(errors.ConnectionError, match="closed by server"):
        line.replies.all()


async def test_an_end_after_all_came(line: Line) -> None:
    """It is the next one's trouble."""
    line.replies.expect(1, line.parser)
    line.server.sendall(b"+OK\r\n")
    line.server.close()
    async with asyncio.timeout(LONG):
        assert await line.stream.read() == b""  # the end has come, too
    await heard([line.replies], LONG)
    assert line.replies.all() == [b"OK"]


async def test_one_that_is_closed_here(line: Line) -> None:
    line.replies.expect(1, line.parser)
    waiting = asyncio.create_task(heard([line.replies], LONG))
    await asyncio.sleep(0)  # it waits
    line.writer.close()
    await waiting
    with pytest.raises(errors.ConnectionError):
        line.replies.all()


async def test_who_is_late_does_not_spoil_it_for_others(line: Line, other: Line) -> None:
    line.replies.expect(1, line.parser)
    other.replies.expect(1, other.parser)
    other.server.sendall(b":7\r\n")
    await heard([other.replies], LONG)
    await heard([line.replies, other.replies], 0.001)
    assert other.replies.all() == [7]
    with pytest.raises(errors.TimeoutError, match=r"no answer within 0\.001 s"):
        line.replies.all()


async def test_all_are_waited_for(line: Line, other: Line) -> None:
    for each in (line, other):
        each.replies.expect(1, each.parser)
    waiting = asyncio.create_task(heard([line.replies, other.replies], LONG))
    other.replies.data_received(b":2\r\n")
    await asyncio.sleep(0)
    assert not waiting.done()
    line.replies.data_received(b":1\r\n")
    await waiting
    assert [each.replies.all() for each in (line, other)] == [[1], [2]]


async def test_what_nobody_waits_for_is_the_stream_s(line: Line) -> None:
    line.server.sendall(b"+HELLO\r\n")
    async with asyncio.timeout(LONG):
        assert await line.stream.readline() == b"+HELLO\r\n"
    assert await line.hears(1, b"+OK\r\n") == [b"OK"]
    line.server.sendall(b"+AGAIN\r\n")
    async with asyncio.timeout(LONG):
        assert await line.stream.readline() == b"+AGAIN\r\n"


async def test_nobody_waits_any_more(line: Line) -> None:
    """A call that was cancelled; what comes then is dropped with its connection."""
    line.replies.expect(1, line.parser)
    waiting = asyncio.create_task(heard([line.replies], LONG))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    line.replies.data_received(b"+OK\r\n")
    assert line.replies.all() == [b"OK"]

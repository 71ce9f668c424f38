"""Replies of a server, parsed as they come: between a connection's transport and its stream.

Takes what arrives: while replies are due it is theirs, else the stream's. `heard` waits for those of several
connections at once, under one timer; a stream of its own for each, read in turns, costs twice as much.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from redis import exceptions as errors
from redis._parsers.hiredis import NOT_ENOUGH_DATA

_CLOSED = "Connection closed by server."


class Replies(asyncio.Protocol):
    """Those of one connection; `due` until all have come, or it is clear that no more will."""

    def __init__(self, transport: Any) -> None:
        self.due = False
        self.refused = False  # some of the commands
        self._told: list[Any] = []
        self._count = 0
        self._fault: Exception | None = None  # from then on nothing comes any more
        self._parser: Any = None
        self._wait: _Wait | None = None
        self._stream: Any = transport.get_protocol()
        transport.set_protocol(self)

    def expect(self, count: int, parser: Any) -> None:
        """So many are due, through this parser of the connection."""
        self._told, self._count, self._parser, self._wait = [], count, parser, None
        self.due, self.refused = count > 0 and self._fault is None, False

    def wait(self, wait: _Wait) -> None:
        """Tell it when they are due no more."""
        self._wait = wait

    def all(self) -> list[Any]:
        """What came, errors of single commands in their places. Raises why not all of it did."""
        if len(self._told) < self._count and self._fault is not None:
            raise self._fault
        return self._told

    def fail(self, fault: Exception) -> None:
        """No more comes; what was wrong first is why."""
        self._fault = self._fault or fault
        self._over()

    def data_received(self, data: bytes) -> None:
        """Whoever it is for."""
        if not self.due:
            self._stream.data_received(data)
            return
        parser, told, count = self._parser, self._told, self._count
        try:
            parser.feed(data)
            while len(told) < count:
                reply = parser.gets()
                if reply is NOT_ENOUGH_DATA:
                    return
                if isinstance(reply, errors.RedisError):
                    self._refuse(reply)
                told.append(reply)
            if parser.has_data():  # it would answer the next call
                raise errors.InvalidResponse("more than was asked for")
        except errors.RedisError as fault:
            self.fail(fault)
        else:
            self._over()

    def eof_received(self) -> Any:
        """The server has closed it."""
        self.fail(errors.ConnectionError(_CLOSED))
        return self._stream.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """It broke, or was closed."""
        fault = errors.ConnectionError(str(exc) if exc else _CLOSED)
        fault.__cause__ = fault.__context__ = exc  # tells more, such as what is wrong with TLS
        self.fail(fault)
        self._stream.connection_lost(exc)

    def pause_writing(self) -> None:
        """The stream's business."""
        self._stream.pause_writing()

    def resume_writing(self) -> None:
        """The stream's business."""
        self._stream.resume_writing()

    def _refuse(self, reply: errors.RedisError) -> None:
        if isinstance(reply, errors.ConnectionError):
            raise reply
        self.refused = True

    def _over(self) -> None:
        if self.due:
            self.due = False
            if self._wait is not None:
                self._wait.one_less()


class _Wait:
    """For several connections."""

    def __init__(self, waiting: list[Replies]) -> None:
        self.over = asyncio.get_running_loop().create_future()
        self._left = len(waiting)
        for each in waiting:
            each.wait(self)

    def one_less(self) -> None:
        """One of them is not due any more."""
        self._left -= 1
        if not self._left and not self.over.done():
            self.over.set_result(None)


async def heard(several: Iterable[Replies], seconds: float) -> None:
    """Wait until none is due any more; those that still are after so many seconds get a time-out."""
    waiting = [each for each in several if each.due]
    if not waiting:
        return
    wait = _Wait(waiting)
    late = asyncio.get_running_loop().call_later(seconds, _expire, waiting, seconds)
    try:
        await wait.over
    finally:
        late.cancel()


def _expire(waiting: list[Replies], seconds: float) -> None:
    for each in waiting:
        if each.due:
            each.fail(errors.TimeoutError(f"no answer within {seconds} s"))

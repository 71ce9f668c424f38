"""One connection of its own for calls that follow each other: the hot path of append, take and settle.

Takes commands; returns their replies as they are (bytes, integers, lists), errors of single commands among
them. Skips the pool and the client's reply parsing, which cost more than the rest of a small batch. A
connection that broke is made again with the next call. Raises what redis-py raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

from redis.asyncio import Redis

from common.connection import QuickConnection, moved_on

Command: TypeAlias = tuple[bytes | str | int, ...]


class Wire:
    """A connection out of a client's pool, kept until `close`. Calls queue up, they never mix.

    `connections` counts how often one was made: as long as it stays the same, it is the same server that
    answers, and has been up all the time.
    """

    def __init__(self, redis: Redis) -> None:
        self.connections = 0
        self._pool = redis.connection_pool
        self._connection: QuickConnection | None = None
        self._turn = asyncio.Lock()

    async def execute_command(self, *command: bytes | str | int) -> Any:
        """One command; raises the error it is answered with."""
        (reply,) = await self.pipeline((command,))
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """All commands in one write; an error is returned in the place of its reply."""
        async with self._turn:
            connection = self._connection
            if connection is None:
                connection = self._connection = await self._pool.get_connection()
                self.connections += 1
            try:
                if not connection.usable:
                    self.connections += 1
                    await connection.connect()
                replies = await connection.exchange(commands)
            except BaseException:  # whatever it was
                await connection.disconnect(nowait=True)  # what still comes would answer the next call
                raise
            if any(map(moved_on, replies)):
                await connection.disconnect(nowait=True)  # and found again with the next call
            return replies

    async def close(self) -> None:
        """Give the connection back."""
        async with self._turn:
            if self._connection is not None:
                await self._pool.release(self._connection)
                self._connection = None

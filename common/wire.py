"""Connections of one's own for calls that follow each other: the hot path of append, take and settle.

Takes commands; returns their replies as they are (bytes, integers, lists), errors of single commands among
them. Skips the pool and the client's reply parsing, which cost more than the rest of a small batch. A
connection that broke is made again with the next call; in a Cluster there is one for each node that is used.
Raises what redis-py raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from redis import exceptions as errors
from redis.asyncio import Redis

from common.cluster import REDIRECTS, Cluster, Node, for_good, key_of
from common.connection import QuickConnection, hear

Command: TypeAlias = tuple[bytes | str | int, ...]
LATE = 0.05  # seconds for replies that had a time-out's time already, since another server can't be reached
_ASKING: Command = ("ASKING",)


class _Line:
    """One connection out of a pool, kept until `close`."""

    def __init__(self, pool: Any) -> None:
        self.made = 0  # how often a connection was
        self._pool = pool
        self._connection: QuickConnection | None = None

    async def send(self, commands: Sequence[Command]) -> QuickConnection:
        """Connect if need be, and send; where the replies will be."""
        connection = self._connection
        if connection is None:
            connection = self._connection = await self._pool.get_connection()
            self.made += 1
        if not connection.usable:
            self.made += 1
            await connection.connect()
        connection.put(commands)
        return connection

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send, and wait for the replies."""
        try:
            connection = await self.send(commands)
            await hear((connection,))
            return await connection.replies()
        except BaseException:  # whatever it was
            await self.hang_up()
            raise

    async def hang_up(self) -> None:
        """What still comes would answer the next call."""
        if self._connection is not None:
            await self._connection.disconnect(nowait=True)

    async def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            await self._pool.release(self._connection)
            self._connection = None


class _Part:
    """What goes to one node of a Cluster, and what came back. `places` are those of its commands, None for an
    ASKING before one of them.
    """

    def __init__(self, node: Node, line: _Line) -> None:
        self.node = node
        self.line = line
        self.places: list[int | None] = []
        self.commands: list[Command] = []
        self.sent: QuickConnection | None = None
        self.told: list[Any] = []
        self.fault: errors.RedisError | None = None

    def add(self, place: int | None, command: Command) -> None:
        """One more command."""
        self.places.append(place)
        self.commands.append(command)

    async def broke(self, fault: errors.RedisError) -> None:
        """It can't be sent, or heard."""
        self.fault = fault
        await self.line.hang_up()


class Wire:
    """Connections out of a client's pools, kept until `close`. Calls queue up, they never mix.

    As long as `connections` stays the same, those that answer are the same servers, and have been up all the
    time.
    """

    def __init__(self, redis: Redis) -> None:
        self._cluster = redis if isinstance(redis, Cluster) else None
        self._line = _Line(redis.connection_pool)
        self._lines: dict[Node, _Line] = {}
        self._made = 0  # by lines that are gone
        self._seen = -1  # changes of the map that were heeded
        self._turn = asyncio.Lock()

    @property
    def connections(self) -> int:
        """How often one was made, or a slot came to another node."""
        if self._cluster is None:
            return self._line.made
        return self._made + self._cluster.changes + sum(line.made for line in self._lines.values())

    async def execute_command(self, *command: bytes | str | int) -> Any:
        """One command; raises the error it is answered with."""
        (reply,) = await self.pipeline((command,))
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def pipeline(self, commands: Sequence[Command], after: Command | None = None) -> list[Any]:
        """All commands in one write per server; an error is returned in the place of its reply.

        `after` follows the others at each server that was used; its replies come last.
        """
        async with self._turn:
            if self._cluster is not None:
                return await self._spread(self._cluster, commands, after)
            return await self._line.exchange(commands if after is None else (*commands, after))

    async def close(self) -> None:
        """Give the connections back."""
        async with self._turn:
            await self._line.close()
            for line in self._lines.values():
                await line.close()

    async def _spread(
        self, cluster: Cluster, commands: Sequence[Command], after: Command | None
    ) -> list[Any]:
        """Each command to its node, all nodes at once."""
        if cluster.doubtful:
            await cluster.look()
        if self._seen != cluster.changes:
            await self._tidy(cluster)
        nodes = [cluster.at(key_of(command)) for command in commands]
        if nodes and nodes.count(nodes[0]) == len(nodes):
            return await self._alone(cluster, nodes[0], commands, after)
        parts = self._parts(((node, False, place) for place, node in enumerate(nodes)), commands)
        await _exchange(cluster, parts, after)
        return await self._follow(cluster, parts, commands, after)

    async def _alone(
        self, cluster: Cluster, node: Node, commands: Sequence[Command], after: Command | None
    ) -> list[Any]:
        """All of it at one node, the usual case of a lane: without the bookkeeping that several need."""
        try:
            told = await self._to(node).exchange(commands if after is None else (*commands, after))
        except errors.RedisError as fault:
            cluster.heard(fault, node)
            raise
        for reply in told:
            if isinstance(reply, errors.RedisError):
                parts = self._parts(((node, False, place) for place in range(len(commands))), commands)
                parts[0].told = told
                return await self._follow(cluster, parts, commands, after)
        return told

    async def _follow(
        self, cluster: Cluster, parts: list[_Part], commands: Sequence[Command], after: Command | None
    ) -> list[Any]:
        """What the parts were told, in its places. Commands that were sent on go there, a few times."""
        replies: list[Any] = [None] * len(commands)
        last: list[Any] = []
        for _ in range(REDIRECTS):
            due = _told(cluster, parts, replies, last)
            if not due:
                return replies + last
            parts = self._parts(due, commands)
            await _exchange(cluster, parts, after)
        _told(cluster, parts, replies, last)
        return replies + last

    def _to(self, node: Node) -> _Line:
        line = self._lines.get(node)
        if line is None:
            line = self._lines[node] = _Line(node.pool)
        return line

    def _parts(self, due: Iterable[tuple[Node, bool, int]], commands: Sequence[Command]) -> list[_Part]:
        parts: dict[Node, _Part] = {}
        for node, asking, place in due:
            part = parts.get(node)
            if part is None:
                part = parts[node] = _Part(node, self._to(node))
            if asking:
                part.add(None, _ASKING)
            part.add(place, commands[place])
        return list(parts.values())

    async def _tidy(self, cluster: Cluster) -> None:
        """Let go of nodes that have nothing any more."""
        self._seen = cluster.changes
        for node in [node for node in self._lines if cluster.nodes.get(node.address) is not node]:
            line = self._lines.pop(node)
            self._made += line.made
            await line.close()
            await cluster.left(node)


def _told(
    cluster: Cluster, parts: Sequence[_Part], replies: list[Any], last: list[Any]
) -> list[tuple[Node, bool, int]]:
    """Put replies in their places; what is to be sent again, and where to."""
    due: list[tuple[Node, bool, int]] = []
    for part in parts:
        answered = False
        for place, reply in zip(part.places, part.told, strict=False):
            if place is None:
                continue
            replies[place] = reply
            if isinstance(reply, errors.AskError):
                due.append((cluster.follow(reply, part.node), not for_good(reply), place))
                continue
            answered = True
            if isinstance(reply, errors.RedisError):
                cluster.heard(reply, part.node)
        if answered:  # one that sent all of them on has nothing to tell
            last += part.told[len(part.places) :]
    return due


async def _exchange(cluster: Cluster, parts: Sequence[_Part], after: Command | None) -> None:
    """Send all before any reply is waited for; raises the first fault when all have been heard."""
    try:
        await _ask_all(parts, after)
    except BaseException:  # cancelled
        for part in parts:
            await part.line.hang_up()
        raise
    faulty = [(part, part.fault) for part in parts if part.fault is not None]
    for part, fault in faulty:
        cluster.heard(fault, part.node)
    if faulty:
        raise faulty[0][1]


async def _ask_all(parts: Sequence[_Part], after: Command | None) -> None:
    """Servers that do not answer are waited for once, not one after the other."""
    patience: float | None = None
    for part in parts:
        try:
            part.sent = await part.line.send(part.commands if after is None else (*part.commands, after))
        except errors.RedisError as fault:
            await part.broke(fault)
            if isinstance(fault, errors.TimeoutError):
                patience = LATE
                break  # the others get their share when all of it is repeated
    sent = [(part, part.sent) for part in parts if part.sent is not None]
    await hear([connection for _, connection in sent], patience)
    for part, connection in sent:
        try:
            part.told = await connection.replies()
        except errors.RedisError as fault:
            await part.broke(fault)

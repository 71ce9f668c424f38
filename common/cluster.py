"""A Cluster: which primary has which keys, and a client that sends each command there.

Takes some of its servers; gives nodes, each with a pool of its own. What the servers say of moved keys
(MOVED, ASK) is followed a few times, everything else is raised as redis-py raises it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from redis import exceptions as errors
from redis.asyncio import BlockingConnectionPool, Redis
from redis.crc import key_slot

from common.connection import QuickConnection, ask
from common.trouble import Kind, kind_of, note
from common.units import Address

SLOTS = 16384
REDIRECTS = 3  # in a row; one more than a slot that moves can need
LOOK = 0.2  # seconds between two questions for the map, when there is a reason to ask
_DOUBTFUL = frozenset((Kind.CONNECTION, Kind.TIMEOUT, Kind.CLUSTER, Kind.READONLY, Kind.NOREPLICAS))
_KEYLESS = frozenset(("TIME", "PING", "INFO", "CONFIG GET", "CLUSTER"))

Command: TypeAlias = Sequence[Any]


class Node:
    """One primary; `redis` is a client of it alone."""

    def __init__(self, address: Address, pool: BlockingConnectionPool) -> None:
        self.address = address
        self.name = str(address)
        self.pool = pool
        self.redis = Redis.from_pool(pool)


class Cluster(Redis):
    """Sends commands to where their keys are. Not for what spans several, such as redis-py's pipelines.

    `make` gives the pool of a server, `link` a connection to one outside of any pool. `changes` counts how
    often a slot has come to another primary, or a node has gone; `doubtful` tells that it is time to `look`.
    """

    def __init__(
        self,
        seeds: Sequence[Address],
        make: Callable[[Address], BlockingConnectionPool],
        link: Callable[[Address], QuickConnection],
    ) -> None:
        super().__init__(connection_pool=make(seeds[0]))  # which is never used
        self.changes = 0
        self.nodes: dict[Address, Node] = {}
        self._make = make
        self._link = link
        self._most = 0  # connections of a pool that somebody asked for
        self._order = list(seeds)  # who is asked for the map; who did not answer comes last
        self._seeds = frozenset(seeds)
        self._slots: list[Node | None] = []
        self.doubtful = True
        self._fault: errors.RedisError | None = None  # of the last question for the map
        self._read_at = float("-inf")
        self._turn = asyncio.Lock()

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        """One command, with its reply as redis-py parses it."""
        if self.doubtful:
            await self.look()
        following, asking, turns = self.at(key_of(command)), False, REDIRECTS
        while True:
            node = following
            try:
                return await _run(node.redis, command, options, asking=asking)
            except errors.AskError as moved:
                following, asking, turns = self.follow(moved, node), not for_good(moved), turns - 1
                if turns < 0:
                    raise
            except errors.RedisError as fault:
                self.heard(fault, node)
                raise
            finally:
                if self.nodes.get(node.address) is not node:
                    await self.left(node)

    def at(self, key: bytes | str | None) -> Node:
        """Where the key is, as far as is known; any node for None."""
        if key is None:
            return next(iter(self.nodes.values()))
        name = key if isinstance(key, str) else key.decode()
        node = self._slots[_slot(name[: name.find("}") + 1] or name)]
        if node is None:
            self.doubtful = True
            raise errors.ClusterDownError("Hash slot not served", status_code="CLUSTERDOWN")
        return node

    def follow(self, fault: errors.AskError, node: Node) -> Node:
        """Where `node` says that the keys are; after MOVED, that is where the slot is from now on."""
        address = Address(_host(fault.host, node.address), fault.port)
        there = self._node(address)
        if for_good(fault):
            self.doubtful = True
            if self._slots[fault.slot_id] is not there:
                self._slots[fault.slot_id] = there
                self.changes += 1
        return there

    def heard(self, fault: errors.RedisError, node: Node) -> None:
        """An answer of `node`, or none, that may mean that others have its slots by now."""
        if kind_of(fault) in _DOUBTFUL:
            self.doubtful = True
        if isinstance(fault, errors.ConnectionError | errors.TimeoutError):
            self._last(node.address)
            note(fault, node.address)

    async def look(self) -> None:
        """Read the map, unless that was just done. Raises only when there is none, or when it is empty."""
        clock = asyncio.get_running_loop().time
        async with self._turn:
            if clock() - self._read_at >= LOOK:  # else somebody else has just done it
                try:
                    await self._read()
                except errors.RedisError as fault:
                    self._fault = fault
                finally:
                    self._read_at = clock()
        if not self._slots:
            raise self._fault or errors.ConnectionError("nobody tells where keys are")
        if not self.nodes:
            raise errors.ClusterDownError("none of its servers has a slot", status_code="CLUSTERDOWN")

    async def left(self, node: Node) -> None:
        """Done with a node; one that is none of the Cluster's any more is closed by whoever used it last."""
        if self.nodes.get(node.address) is not node:
            await node.redis.aclose()

    async def primaries(self) -> list[Node]:
        """All there are."""
        if self.doubtful:
            await self.look()
        return list(self.nodes.values())

    def allow(self, connections: int) -> None:
        """Let each node's pool have so many connections, now and later."""
        self._most = max(self._most, connections)
        for node in self.nodes.values():
            node.pool.max_connections = max(node.pool.max_connections, connections)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close everything."""
        await super().aclose(close_connection_pool)
        for node in self.nodes.values():
            await node.redis.aclose()

    async def _read(self) -> None:
        known = [*self._order, *(address for address in self.nodes if address not in self._order)]
        fault: errors.RedisError | None = None
        for address in known:
            try:
                told = await ask(self._link(address), "CLUSTER", "SLOTS")
            except errors.RedisError as why:
                note(why, address)
                fault = fault or why
                self._last(address)
                if self._slots and isinstance(why, errors.TimeoutError):
                    break  # whoever looks next asks another one; the map there is will do meanwhile
            else:
                await self._use(told, address)
                return
        raise fault or errors.ConnectionError("no server of the Cluster is known")

    async def _use(self, told: Sequence[Any], asked: Address) -> None:
        """Go by this map from now on."""
        before, self.doubtful = self._slots, False
        self._slots = [None] * SLOTS
        wanted: set[Address] = set()
        for first, last, primary, *_ in told:
            address = Address(_host((primary[0] or b"").decode(), asked), primary[1])
            wanted.add(address)
            self._slots[first : last + 1] = [self._node(address)] * (last - first + 1)
        self.doubtful = None in self._slots
        gone = [self.nodes.pop(address) for address in self.nodes.keys() - wanted]
        self.changes += bool(gone) or before != self._slots
        for node in gone:
            await node.redis.aclose()
        self._order = [address for address in self._order if address in wanted | self._seeds]

    def _node(self, address: Address) -> Node:
        if address not in self.nodes:
            self.nodes[address] = Node(address, self._make(address))
            self.allow(self._most)
        return self.nodes[address]

    def _last(self, address: Address) -> None:
        """Ask others for the map first."""
        if address in self._order:
            self._order.remove(address)
        self._order.append(address)


@lru_cache(maxsize=4096)
def _slot(tag: str) -> int:
    """That of all keys that begin with this hash tag; ours do."""
    return int(key_slot(tag.encode()))


def _host(told: str, asked: Address) -> str:
    """A server that does not know its own address, or name, leaves it out, or tells `?`."""
    return told if told not in ("", "?") else asked.host


async def _run(redis: Redis, command: Command, options: dict[str, Any], *, asking: bool) -> Any:
    if not asking:
        return await redis.execute_command(*command, **options)
    pipeline = redis.pipeline(transaction=False)
    pipeline.execute_command("ASKING")
    pipeline.execute_command(*command, **options)
    return (await pipeline.execute())[1]


def for_good(fault: errors.AskError) -> bool:
    """MOVED, and not ASK."""
    return isinstance(fault, errors.MovedError)


def key_of(command: Command) -> Any:
    """The first key of a command, of which all keys are in one slot; None when it has no key."""
    name = command[0]
    if name in ("EVALSHA", "EVAL"):
        return command[3] if command[2] else None
    if name in ("XREAD", "XREADGROUP"):
        return command[command.index("STREAMS") + 1]
    return None if name in _KEYLESS or len(command) == 1 else command[1]

"""A Cluster on free loopback ports: three primaries, with or without a replica each, in two seconds.

`Cluster("redis", directory, replicas=True).start()`; `move` takes a slot elsewhere, as a reshard does, in
parts if told to, and `move_at_once` as Valkey 9 does; `fail_over` makes a replica a primary. All calls block.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import redis
from redis.crc import key_slot

from common.cluster import key_of
from tests.support.certificates import Files
from tests.support.servers import PATIENCE, Kind, Server, free_port

SLOTS = 16384
GIVEN_UP = 6.0  # seconds after which servers have given a manual failover up
PRIMARIES = 3


class Cluster:
    """`nodes` are the primaries of the start, then their replicas in the same order."""

    def __init__(
        self,
        kind: Kind,
        directory: Path,
        *,
        replicas: bool = False,
        timeout: int = 1000,
        tls: Files | None = None,
    ) -> None:
        count = PRIMARIES * (2 if replicas else 1)
        self.nodes = [Server(kind, directory / f"node-{n}", tls=tls) for n in range(count)]
        self._tls = tls
        self._timeout = timeout

    @property
    def url(self) -> str:
        """For `redis.url`."""
        nodes = ",".join(f"{node.host}:{node.port}" for node in self.nodes)
        return (
            f"redis+cluster://{nodes}" if self._tls is None else f"rediss+cluster://{nodes}{self._tls.query}"
        )

    def start(self, *options: str) -> Self:
        """Start all with further options, and wait until they agree."""
        for n, node in enumerate(self.nodes):
            node.start(
                *("--cluster-enabled", "yes", "--cluster-port", str(free_port())),
                *("--cluster-node-timeout", str(self._timeout), "--repl-diskless-sync-delay", "0", *options),
            )
            node.cli("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        for n in range(PRIMARIES):
            self.nodes[n].cli(
                "CLUSTER", "ADDSLOTSRANGE", n * SLOTS // PRIMARIES, (n + 1) * SLOTS // PRIMARIES - 1
            )
        for node in self.nodes:
            for other in self.nodes:
                if other is not node:
                    node.cli("CLUSTER", "MEET", other.host, other.port, other.bus)
        self.wait(lambda: all(self._knows_all(node) for node in self.nodes), "they know each other")
        for replica, primary in zip(self.nodes[PRIMARIES:], self.nodes, strict=False):
            replica.cli("CLUSTER", "REPLICATE", self.id_of(primary))
        self.wait(lambda: all(map(is_well, self.nodes)), "all is well")
        return self

    def close(self) -> None:
        """End them all."""
        for node in self.nodes:
            node.kill()

    def cli(self, *words: str | bytes | int) -> Any:
        """One command at the primary that has its key."""
        return self.owner(slot_of(str(key_of(words)))).cli(*words)

    def primaries(self) -> list[Server]:
        """Those of now."""
        return [node for node in self.nodes if node.pid and node.cli("ROLE")[0] == "master"]

    def owner(self, slot: int) -> Server:
        """Who has a slot, as most say."""
        told = [self._owner(node, slot) for node in self.nodes if node.pid]
        port = max(told, key=told.count)
        return next(node for node in self.nodes if node.port == port)

    def _owner(self, node: Server, slot: int) -> int:
        ranges = node.cli("CLUSTER", "SLOTS")
        return next((int(primary[1]) for first, last, primary, *_ in ranges if first <= slot <= last), 0)

    def id_of(self, node: Server) -> str:
        """As the Cluster knows it."""
        return str(node.cli("CLUSTER", "MYID"))

    def move(self, slot: int, to: Server, between: Callable[[], Any] | None = None) -> None:
        """Move it with its keys, one by one; `between` is called when half of them are there."""
        source = self.owner(slot)
        begin_move(self, slot, source, to)
        half = source.cli("CLUSTER", "COUNTKEYSINSLOT", slot) // 2
        while between is not None and source.cli("CLUSTER", "COUNTKEYSINSLOT", slot) > half:
            [key] = source.cli("CLUSTER", "GETKEYSINSLOT", slot, 1)
            source.cli("MIGRATE", to.host, to.port, key, 0, 5000)
        if between is not None:
            between()
        while keys := source.cli("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.cli("MIGRATE", to.host, to.port, "", 0, 5000, "KEYS", *keys)
        for node in (to, source, *self.primaries()):
            node.cli("CLUSTER", "SETSLOT", slot, "NODE", self.id_of(to))

    def move_at_once(self, slot: int, to: Server) -> None:
        """Move it as a whole, which fails where the servers have no time; then once more."""
        source = self.owner(slot)
        asked = ("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", self.id_of(to))

        def over() -> bool:
            newest = source.cli("CLUSTER", "GETSLOTMIGRATIONS")[0]
            state = newest[newest.index("state") + 1]
            if state == "failed":
                source.cli(*asked)
            return bool(state == "success")

        source.cli(*asked)
        self.wait(over, "a migration")
        self.wait(lambda: self.owner(slot) is to, "all know who has it")

    def fail_over(self, primary: Server) -> Server:
        """Nobody dies: its replica takes its slots over; the new primary."""
        own = self.id_of(primary)
        replica = next(node for node in self.nodes if node.pid and _replicates(node, own))
        asked = float("-inf")

        def over() -> bool:
            nonlocal asked
            if replica.cli("ROLE")[0] == "master":
                return bool(primary.cli("ROLE")[0] == "slave")
            if time.monotonic() - asked > GIVEN_UP:
                replica.cli("CLUSTER", "FAILOVER")
                asked = time.monotonic()
            return False

        self.wait(over, "a failover", 3 * PATIENCE)
        return replica

    def wait(self, holds: Callable[[], Any], what: str, patience: float = PATIENCE) -> None:
        """Until it holds. Raises RuntimeError."""
        deadline = time.monotonic() + patience
        while not holds():
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"the Cluster: {what}: not within {patience} s\n{self.nodes[0].log()[-2000:]}"
                )
            time.sleep(0.02)

    def _knows_all(self, node: Server) -> bool:
        told = node.cli("CLUSTER", "NODES")
        return told.count("connected") == len(self.nodes) and "handshake" not in told


def begin_move(cluster: Cluster, slot: int, source: Server, to: Server) -> None:
    """From now on both say ASK and TRYAGAIN."""
    to.cli("CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.id_of(source))
    source.cli("CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.id_of(to))


def slot_of(key: str) -> int:
    """The slot of a key."""
    return key_slot(key.encode())


def _replicates(node: Server, primary_id: str) -> bool:
    return f"myself,slave {primary_id}" in node.cli("CLUSTER", "NODES")


def is_well(node: Server) -> bool:
    """Whether it answers, and its replica is there if it has one."""
    try:
        told = node.cli("CLUSTER", "INFO")
        role = node.cli("ROLE")
    except redis.RedisError:  # it loads what its primary sends
        return False
    return "cluster_state:ok" in told and (role[0] == "master" or role[3] == "connected")

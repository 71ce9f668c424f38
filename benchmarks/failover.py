"""`python -m benchmarks.failover`: what failovers and moved slots do to a steady load, on both servers.

Sentinels with a primary and two replicas, or a Cluster of three primaries with a replica each; one ingest and
one dispatcher. Prints a table; the exit code is 1 when something was lost although it was to be replicated, a
ledger is not exact, or it took more than 5 s longer than the servers themselves did.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import click
import psutil
import redis
import uvloop
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from benchmarks.stack import Process, Stack
from benchmarks.steady import DESTINATIONS, Arrivals, Sender
from common import connect, keys, settings
from common.snapshot import snapshot
from common.units import Duration
from tests.support.cluster import Cluster, slot_of
from tests.support.sentinels import NAME, Sentinels
from tests.support.servers import Kind, Server

NAMESPACE = "failover"
CALM = 4.0  # seconds before and after
DRAIN = 120.0
TARGET = 5.0  # seconds that we may take longer than the servers
LOOK = 0.02
Servers: TypeAlias = Sentinels | Cluster
KINDS: tuple[Kind, ...] = ("redis", "valkey")


class Seen(Struct, frozen=True):
    """One trial. `own` is how long the servers took, `ours` how much longer it was until an alert for every
    destination was acknowledged again, and one arrived (seconds); `held` are the connections to the servers
    that ingest and the dispatcher have afterwards, beyond those of before."""

    what: str
    kind: str
    durability: str
    rate: float
    acknowledged: int
    refused: int
    lost: int
    again: int
    own: float
    ours: tuple[float, float]
    unaccounted: int
    depth: int
    held: tuple[int, int]

    @property
    def good(self) -> bool:
        """Whether it is as promised."""
        kept = not self.lost or self.durability == "written"
        return kept and not self.unaccounted and not self.depth and max(self.ours) <= TARGET


def kill_primary(servers: Servers) -> float:
    """The primary dies; seconds until the servers have another."""
    assert isinstance(servers, Sentinels)  # noqa: S101 - trials and servers go together
    before = servers.primary()
    before.kill()
    began = time.monotonic()
    servers.wait(lambda: servers.primary() is not before and servers.cli("ROLE")[0] == "master", 60)
    return time.monotonic() - began


def by_hand(servers: Servers) -> float:
    """`SENTINEL FAILOVER`: the old primary lives on for a while."""
    assert isinstance(servers, Sentinels)  # noqa: S101 - trials and servers go together
    before, began = servers.primary(), time.monotonic()
    servers.sentinels[0].cli("SENTINEL", "FAILOVER", NAME)
    servers.wait(lambda: servers.primary() is not before, 60)
    took = time.monotonic() - began
    servers.wait(partial(is_replica, before), 60)
    return took


def is_replica(server: Server) -> bool:
    """Whether it has become one; what it is asked over is cut when it does."""
    try:
        return bool(server.cli("ROLE")[0] == "slave")
    except redis.ConnectionError:
        return False


def kill_node(servers: Servers) -> float:
    """The server of the first destination dies, and comes back as a replica once it was replaced."""
    assert isinstance(servers, Cluster)  # noqa: S101 - trials and servers go together
    slot = slot_of(keys.stream(NAMESPACE, DESTINATIONS[0]))
    before = servers.owner(slot)
    before.kill()
    began = time.monotonic()
    servers.wait(lambda: servers.owner(slot) is not before, "another server has its slots", 60)
    took = time.monotonic() - began
    before.restart()
    return took


def move_slots(servers: Servers, *, at_once: bool = False) -> float:
    """The slot of every destination goes to the next server, with its keys."""
    assert isinstance(servers, Cluster)  # noqa: S101 - trials and servers go together
    move, began = servers.move_at_once if at_once else servers.move, time.monotonic()
    for name in DESTINATIONS:
        slot = slot_of(keys.stream(NAMESPACE, name))
        source, primaries = servers.owner(slot), servers.primaries()
        move(slot, primaries[(primaries.index(source) + 1) % len(primaries)])
    return time.monotonic() - began


def in_a_row(servers: Servers) -> float:
    """A hundred failovers, one after the other."""
    assert isinstance(servers, Cluster)  # noqa: S101 - trials and servers go together
    began = time.monotonic()
    for n in range(100):
        slot = slot_of(keys.stream(NAMESPACE, DESTINATIONS[n % len(DESTINATIONS)]))
        servers.wait(partial(_fails_over, servers, slot), "a failover", 60)
    return time.monotonic() - began


def _fails_over(servers: Cluster, slot: int) -> bool:
    try:
        servers.fail_over(servers.owner(slot))
    except StopIteration:  # its replica is not one yet
        return False
    return True


TRIALS: dict[str, tuple[str, Callable[[Servers], float]]] = {
    "primary killed": ("sentinel", kill_primary),
    "failover by hand": ("sentinel", by_hand),
    "node killed": ("cluster", kill_node),
    "slots moved": ("cluster", move_slots),
    "slots moved at once": ("cluster", partial(move_slots, at_once=True)),
    "100 failovers": ("cluster", in_a_row),
}


ALONE: dict[str, Kind] = {"slots moved at once": "valkey"}  # the other one has no such thing


async def trial(what: str, kind: Kind, durability: str, rate: float, directory: Path) -> Seen:
    """One trial on servers of its own."""
    group, fault = TRIALS[what]
    servers: Servers = (
        Sentinels(kind, directory / "servers")
        if group == "sentinel"
        else Cluster(kind, directory / "servers", replicas=True)
    )
    try:
        await asyncio.to_thread(servers.start, "--appendonly", "yes")
        async with Arrivals() as receiver, Stack(directory) as stack:
            return await _measured(what, kind, durability, rate, servers, fault, receiver, stack)
    finally:
        servers.close()


async def _measured(
    what: str,
    kind: str,
    durability: str,
    rate: float,
    servers: Servers,
    fault: Callable[[Servers], float],
    receiver: Arrivals,
    stack: Stack,
) -> Seen:
    path = stack.config(configuration(servers.url, receiver.url, durability))
    services = [await stack.module(name, path) for name in ("ingest", "dispatcher")]
    await services[0].event("redis_seen")
    await services[1].event("delivering")
    sender = Sender(f"http://{(await services[0].event('listening'))['address']}", rate)
    posting = asyncio.create_task(sender.run())
    began = time.monotonic()
    await asyncio.sleep(CALM)
    before = [connections(each, servers) for each in services]
    faulty = time.monotonic()
    own = await asyncio.to_thread(fault, servers)
    await asyncio.sleep(CALM)
    await _resumed(sender, receiver, faulty + own)
    sender.stop.set()
    await posting
    seconds = time.monotonic() - began
    depth, unaccounted = await _drained(servers.url)
    held = [connections(each, servers) - then for each, then in zip(services, before, strict=True)]
    for each in services:
        await each.stop()
    return Seen(
        what=what,
        kind=kind,
        durability=durability,
        rate=len(sender.acknowledged) / seconds,
        acknowledged=len(sender.acknowledged),
        refused=sender.refused,
        lost=len(sender.acknowledged.keys() - receiver.came.keys()),
        again=sum(count - 1 for count in receiver.came.values()),
        own=own,
        ours=_longest(sender, receiver, faulty + own),
        unaccounted=unaccounted,
        depth=depth,
        held=(held[0], held[1]),
    )


async def _resumed(sender: Sender, receiver: Arrivals, after: float) -> None:
    deadline = time.monotonic() + DRAIN
    while max(_longest(sender, receiver, after)) == float("inf"):
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(LOOK)


def _longest(sender: Sender, receiver: Arrivals, after: float) -> tuple[float, float]:
    """Seconds from `after` to the slowest destination's first acknowledgement, and its first arrival."""
    told: dict[str, float] = dict.fromkeys(DESTINATIONS, float("inf"))
    came = told.copy()
    for key, one in sender.acknowledged.items():
        name = one.destination
        if one.at > after:
            told[name] = min(told[name], one.at)
        if receiver.at.get(key, 0) > after:
            came[name] = min(came[name], receiver.at[key])
    return max(told.values()) - after, max(came.values()) - after


async def _drained(url: str) -> tuple[int, int]:
    """What is left and what is unaccounted for, once the queues are empty or for too long are not."""
    client = connect.client(settings.Redis(url=url, timeout=Duration(10)), connections=4)
    deadline = time.monotonic() + DRAIN
    try:
        while True:
            seen = [await snapshot(client, NAMESPACE, name) for name in DESTINATIONS]
            depth = sum(each.depth for each in seen)
            if not depth or time.monotonic() > deadline:
                return depth, sum(each.unaccounted for each in seen)
            await asyncio.sleep(10 * LOOK)
    finally:
        await client.aclose()


def configuration(url: str, to: str, durability: str) -> dict[str, object]:
    """Of both services."""
    return {
        "redis": {"url": url, "namespace": NAMESPACE},
        "ingest": {"listen": "127.0.0.1:0", "durability": durability},
        "dispatcher": {"listen": "127.0.0.1:0", "visibility_timeout": "5s"},
        "destinations": [
            {"name": name, "type": "webhook", "url": to, "allow_private": True} for name in DESTINATIONS
        ],
        "routes": [{"match": {"name": name}, "to": [name]} for name in DESTINATIONS] + [{"to": ["one"]}],
    }


def connections(process: Process, servers: Servers) -> int:
    """How many it has to any of the servers."""
    each = [*servers.servers, *servers.sentinels] if isinstance(servers, Sentinels) else servers.nodes
    ports = {server.port for server in each}
    own = psutil.Process(process.pid).net_connections("tcp")
    return sum(bool(one.raddr) and one.raddr.port in ports for one in own)


def table(seen: list[Seen]) -> Table:
    """For people."""
    drawn = Table("what", "server", "durability", "alerts/s", "acknowledged", "lost", "twice", "refused")
    for heading in ("servers, s", "we longer, s", "ledger", "connections", ""):
        drawn.add_column(heading)
    for one in seen:
        drawn.add_row(
            *(one.what, one.kind, one.durability, f"{one.rate:.0f}", str(one.acknowledged), str(one.lost)),
            *(str(one.again), str(one.refused), f"{one.own:.1f}", f"{one.ours[0]:.1f}, {one.ours[1]:.1f}"),
            *(str(one.unaccounted), f"{one.held[0]:+d}, {one.held[1]:+d}"),
            "[green]met[/]" if one.good else "[red]missed[/]",
        )
    return drawn


@click.command()
@click.option("--rate", default=1000.0, show_default=True, help="Alerts per second.")
@click.option("--trial", "trials", multiple=True, type=click.Choice(list(TRIALS)), help="Only this.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only this server.")
@click.option("--durability", "how", multiple=True, type=click.Choice(["written", "replicated"]))
def main(rate: float, trials: tuple[str, ...], kinds: tuple[Kind, ...], how: tuple[str, ...]) -> None:
    """What failovers do to a steady load."""
    console, seen = Console(width=150), []
    for what in trials or TRIALS:
        for kind in [kind for kind in kinds or KINDS if kind == ALONE.get(what, kind)]:
            for durability in how or ("written", "replicated"):
                with tempfile.TemporaryDirectory(prefix="redispatch-failover-") as directory:
                    seen.append(uvloop.run(trial(what, kind, durability, rate, Path(directory))))
                console.print(f"{what}, {kind}, {durability}: {seen[-1]}", style="dim", markup=False)
    console.print(table(seen))
    sys.exit(0 if all(one.good for one in seen) else 1)


if __name__ == "__main__":
    main()

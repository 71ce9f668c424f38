"""`python -m benchmarks.spread`: what a Cluster of three costs ingest and dispatcher, beside one server.

Both stand at the same time, each with an ingest and a dispatcher of its own, and get the same load in turns:
alerts one by one at a pace, each for one destination, then for three. Prints CPU per alert, and ratios.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median

import click
import psutil
import uvloop
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from benchmarks.load import load
from benchmarks.stack import Process, Stack, free_port
from tests.support.cluster import Cluster
from tests.support.servers import Server

TARGET = 1.15
NAMES = ("one", "two", "three")
NAMESPACE = "spread"


class Used(Struct, frozen=True):
    """CPU per alert, microseconds."""

    ingest: float
    dispatcher: float


class Side(Struct):
    """A pair of services on their server or servers."""

    address: str
    ingest: Process
    dispatcher: Process

    async def measure(self, directory: Path, seconds: float, pace: float) -> Used:
        """One turn."""
        before = [cpu(each) for each in (self.ingest, self.dispatcher)]
        told = await load(self.address, directory, seconds=seconds, pace=pace)
        used = [cpu(each) - then for each, then in zip((self.ingest, self.dispatcher), before, strict=True)]
        return Used(*(each / (told.rate * seconds) * 1e6 for each in used))


def cpu(process: Process) -> float:
    """Seconds so far."""
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


async def start(url: str, names: tuple[str, ...], stack: Stack) -> Side:
    """Both services; every alert goes to all of the destinations."""
    address = f"127.0.0.1:{free_port()}"
    path = stack.config(
        {
            "redis": {"url": url, "namespace": NAMESPACE},
            "ingest": {"listen": address},
            "dispatcher": {"listen": "127.0.0.1:0"},
            "destinations": [{"name": name, "type": "discard"} for name in names],
        }
    )
    ingest = await stack.module("ingest", path)
    await ingest.event("redis_seen")
    dispatcher = await stack.module("dispatcher", path)
    await dispatcher.event("delivering")
    return Side(address, ingest, dispatcher)


async def beside(
    urls: tuple[str, str], names: tuple[str, ...], directory: Path, rounds: int, seconds: float, pace: float
) -> list[tuple[Used, Used]]:
    """Rounds of one server's and of the Cluster's turn."""
    places = [directory / f"{side}-{len(names)}" for side in ("alone", "cluster")]
    for place in places:
        place.mkdir()
    async with Stack(places[0]) as one, Stack(places[1]) as other:
        alone = await start(urls[0], names, one)
        spread = await start(urls[1], names, other)
        for side in (alone, spread):
            await side.measure(directory, 1, pace)
        return [
            (await alone.measure(directory, seconds, pace), await spread.measure(directory, seconds, pace))
            for _ in range(rounds)
        ]


def rows(names: tuple[str, ...], runs: list[tuple[Used, Used]]) -> list[tuple[str, float, float, float]]:
    """Per service: microseconds with one server and with the Cluster, and the median of their ratios."""
    told = []
    for service in ("ingest", "dispatcher"):
        alone, spread = ([getattr(run[side], service) for run in runs] for side in (0, 1))
        ratio = median(b / a for a, b in zip(alone, spread, strict=True))
        what = f"{service}, alerts for {len(names)} destination{'s' if len(names) > 1 else ''}"
        told.append((what, median(alone), median(spread), ratio))
    return told


async def run(
    rounds: int, seconds: float, pace: float, directory: Path
) -> list[tuple[str, float, float, float]]:
    """All of it."""
    alone, cluster = Server("valkey", directory / "server"), Cluster("valkey", directory / "nodes")
    try:
        urls = (alone.start().url, cluster.start().url)
        told = []
        for names in (NAMES[:1], NAMES):
            told += rows(names, await beside(urls, names, directory, rounds, seconds, pace))
        return told
    finally:
        alone.kill()
        cluster.close()


@click.command()
@click.option("--rounds", default=7, show_default=True)
@click.option("--seconds", default=4.0, show_default=True, help="Of each turn.")
@click.option("--pace", default=1000.0, show_default=True, help="Alerts per second.")
def main(rounds: int, seconds: float, pace: float) -> None:
    """What a Cluster costs ingest and dispatcher."""
    with tempfile.TemporaryDirectory(prefix="redispatch-spread-") as directory:
        told = uvloop.run(run(rounds, seconds, pace, Path(directory)))
    drawn = Table("CPU per alert", "one server, us", "Cluster of three, us", "ratio", "target")
    for what, one, other, ratio in told:
        drawn.add_row(what, f"{one:.0f}", f"{other:.0f}", f"{ratio:.2f}", f"{TARGET:.2f} or less")
    Console(width=110).print(drawn)
    sys.exit(0 if all(ratio <= TARGET for *_, ratio in told) else 1)


if __name__ == "__main__":
    main()

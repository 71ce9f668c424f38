"""`make bench`: what ingest and dispatcher do here, as ratios within one run.

1. One ingest process beside a bare aiohttp handler, in turns, under the same load; the dispatcher is stopped.
2. The same ingest with a dispatcher running: latency, and whether anything is refused.
   Both with connections that send as soon as they are answered (then the mean latency is connections : rate),
   and at half of that rate.
3. One dispatcher that settles a full queue to `discard`.
4. A webhook and a bare aiohttp client, in turns, posting to one receiver; a dispatcher that does the same.
5. A destination alone and beside four broken ones, in turns.
6. A destination that comes back while thousands of deliveries wait and three replicas want to send.
7. Senders alone, and beside hostile ones: zip bombs, slow bodies, thousands of idle connections.
8. Bodies of 500 lines through ingest beside the append script alone, in turns.
9. What `/metrics` and the server have to do for it while a large backlog waits.
10. What an alert costs in CPU and memory, for docs/scaling.md.

Prints a table with the targets beside; `--check` exits with 1 when one is missed.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from statistics import median

import click
import uvloop
from rich.console import Console
from rich.progress import Progress

from benchmarks import backlog, figures, hostile, ndjson, neighbours, outage, scaling, webhook
from benchmarks.drain import LOOK, config, settle
from benchmarks.figures import Row, table
from benchmarks.fill import NAMESPACE
from benchmarks.load import Measured, Missing, load
from benchmarks.stack import Broken, Server, Stack, free_port
from common.snapshot import snapshot

PARTS = ("ingest", "dispatcher", "webhook", "neighbours", "outage", "hostile", "ndjson", "backlog", "scaling")


async def compare(stack: Stack, server: Server, progress: Progress, rounds: int, seconds: float) -> list[Row]:
    """Ingest beside the bare handler, in turns, then with a dispatcher running."""
    ours, bare = free_port(), free_port()
    path = stack.config(config(server, ours))
    services = [await stack.module("ingest", path), await stack.module("benchmarks.bare", path, str(bare))]
    for service in services:
        await service.event("listening")
    await services[0].event("redis_seen")
    await load(f"127.0.0.1:{ours}", stack.directory, seconds=1)
    task = progress.add_task("ingest beside a bare handler", total=2 * rounds)
    pairs: list[tuple[Measured, Measured]] = []
    for _ in range(rounds):
        one = await load(f"127.0.0.1:{bare}", stack.directory, seconds=seconds)
        progress.advance(task)
        two = await load(f"127.0.0.1:{ours}", stack.directory, seconds=seconds)
        progress.advance(task)
        pairs.append((one, two))
    few = await load(f"127.0.0.1:{ours}", stack.directory, seconds=seconds, connections=8)
    rows = [*figures.ingest_beside_bare(pairs), await _paced(stack, ours, seconds, [two for _, two in pairs])]
    rows.append(Row("its p99 at 8 saturating connections", f"{few.p99:.1f} ms"))
    dispatcher = await stack.module("dispatcher", path)
    await dispatcher.event("delivering")
    await _until_empty(server)  # what came in while it was stopped is another measurement
    busy = [await load(f"127.0.0.1:{ours}", stack.directory, seconds=seconds) for _ in range(rounds)]
    rows += [*figures.ingest_with_dispatcher(busy), await _paced(stack, ours, seconds, busy)]
    for service in (*services, dispatcher):
        await service.stop()
    return rows


async def _paced(stack: Stack, ingest: int, seconds: float, saturated: list[Measured]) -> Row:
    """The same connections at about half of the rate at which they saturate it."""
    pace = median(run.rate for run in saturated) / 2
    seen = await load(f"127.0.0.1:{ingest}", stack.directory, seconds=seconds, pace=pace)
    figure = f"{seen.p50:.1f} and {seen.p99:.1f} ms at {seen.rate:,.0f}/s, {seen.refused} refused"
    return Row("its p50 and p99 at half of that", figure)


async def _until_empty(server: Server) -> None:
    redis = server.client()
    while True:
        if (await snapshot(redis, NAMESPACE, "sink")).depth == 0:
            break
        await asyncio.sleep(LOOK)
    await redis.aclose()


async def run(*, quick: bool, parts: tuple[str, ...], console: Console) -> list[Row]:
    """All parts, or those asked for."""
    rounds, seconds, alerts = (1, 2, 40_000) if quick else (5, 5, 100_000)
    rows: list[Row] = []
    progress = Progress(console=console, transient=True, disable=not console.is_terminal)
    with tempfile.TemporaryDirectory(prefix="redispatch-bench-") as directory, progress:
        async with Stack(Path(directory)) as stack:
            # Rewriting its log would take one of two cores at a moment of its own choice.
            server = await stack.server("--auto-aof-rewrite-percentage", "0")
            if "ingest" in parts:
                rows += await compare(stack, server, progress, rounds, seconds)
            if "dispatcher" in parts:
                runs = [await settle(stack, server, progress, alerts) for _ in range(rounds)]
                rows += figures.settled(runs)
            if "webhook" in parts:
                rows += figures.posted(await webhook.compare(stack, server, progress, rounds, alerts // 10))
            if "neighbours" in parts:
                rows += figures.beside_broken(
                    await neighbours.beside(stack, server, progress, rounds, seconds)
                )
            if "outage" in parts:
                rows += figures.came_back(await outage.comeback(stack, server, progress, alerts // 20))
            if "hostile" in parts:
                rows += figures.beside_hostile(await hostile.beside(stack, server, progress, seconds))
            if "ndjson" in parts:
                rows += figures.by_lines(
                    await ndjson.beside(stack, server, progress, rounds, alerts // ndjson.LINES)
                )
            if "backlog" in parts:
                rows += figures.looked(await backlog.look(stack, server, progress, 10 * alerts, 2 * seconds))
            if "scaling" in parts:
                rows += figures.costing(
                    await scaling.measure(stack, server, progress, 2 * seconds, alerts // 2)
                )
    return rows


@click.command()
@click.option("--quick", is_flag=True, help="A minute instead of eight; the figures are rough.")
@click.option("--check", is_flag=True, help="Exit with 1 when a target is missed.")
@click.option("--part", "parts", multiple=True, type=click.Choice(PARTS), help="Only this.")
def main(quick: bool, check: bool, parts: tuple[str, ...]) -> None:
    """Measure ingest and dispatcher on this machine."""
    console = Console()
    try:
        rows = uvloop.run(run(quick=quick, parts=parts or PARTS, console=console))
    except (Broken, Missing) as fault:
        raise click.ClickException(str(fault)) from fault
    console.print(table(rows))
    sys.exit(1 if check and any(row.good is False for row in rows) else 0)


if __name__ == "__main__":
    main()

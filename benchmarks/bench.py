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
import time
from pathlib import Path
from statistics import median

import click
import uvloop
from msgspec import Struct
from redis.asyncio import Redis
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import backlog, hostile, ndjson, neighbours, outage, scaling, webhook
from benchmarks.fill import NAMESPACE, fill
from benchmarks.floor import cpu, floor
from benchmarks.load import Measured, Missing, load
from benchmarks.stack import Broken, Process, Server, Stack, free_port
from common.snapshot import snapshot

PARTS = ("ingest", "dispatcher", "webhook", "neighbours", "outage", "hostile", "ndjson", "backlog", "scaling")
SLOTS = 2048  # of the dispatcher: enough that reading, sending and settling overlap
CONNECTIONS = 32
LOOK = 0.02  # seconds between two looks at the ledger


class Row(Struct, frozen=True):
    """One figure; `good` is None where there is no target."""

    what: str
    figure: str
    target: str = ""
    good: bool | None = None


def config(server: Server, ingest: int) -> dict[str, object]:
    """What the services are started with."""
    return {
        "redis": {"url": server.url, "namespace": NAMESPACE},
        "ingest": {"listen": f"127.0.0.1:{ingest}"},
        "dispatcher": {"listen": f"127.0.0.1:{free_port()}"},
        "queue": {"max_depth": 10_000_000},
        "destinations": [{"name": "sink", "type": "discard", "max_in_flight": SLOTS}],
    }


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
    rows = [*_beside(pairs), await _paced(stack, ours, seconds, [two for _, two in pairs])]
    rows.append(Row("its p99 at 8 saturating connections", f"{few.p99:.1f} ms"))
    dispatcher = await stack.module("dispatcher", path)
    await dispatcher.event("delivering")
    await _until_empty(server)  # what came in while it was stopped is another measurement
    busy = [await load(f"127.0.0.1:{ours}", stack.directory, seconds=seconds) for _ in range(rounds)]
    rows += [*_with_dispatcher(busy), await _paced(stack, ours, seconds, busy)]
    for service in (*services, dispatcher):
        await service.stop()
    return rows


async def _paced(stack: Stack, ingest: int, seconds: float, saturated: list[Measured]) -> Row:
    """The same connections at about half of the rate at which they saturate it."""
    pace = median(run.rate for run in saturated) / 2
    seen = await load(f"127.0.0.1:{ingest}", stack.directory, seconds=seconds, pace=pace)
    figure = f"{seen.p50:.1f} and {seen.p99:.1f} ms at {seen.rate:,.0f}/s, {seen.refused} refused"
    return Row("its p50 and p99 at half of that", figure)


def _saturated(runs: list[Measured], target: float) -> Row:
    rate, p50, p99 = (median(values) for values in zip(*((r.rate, r.p50, r.p99) for r in runs), strict=True))
    figure = f"{p50:.1f} and {p99:.1f} ms, mean {CONNECTIONS * 1000 / rate:.1f}"
    what = f"its p50 and p99, {CONNECTIONS} saturating connections"
    return Row(what, figure, f"p99 under {target:.0f} ms", p99 < target)


async def _until_empty(server: Server) -> None:
    redis = server.client()
    while True:
        if (await snapshot(redis, NAMESPACE, "sink")).depth == 0:
            break
        await asyncio.sleep(LOOK)
    await redis.aclose()


def _beside(pairs: list[tuple[Measured, Measured]]) -> list[Row]:
    ratio = median(ours.rate / bare.rate for bare, ours in pairs)
    bare_rate, bare_p99 = (median(getattr(bare, name) for bare, _ in pairs) for name in ("rate", "p99"))
    return [
        Row("bare aiohttp handler", f"{bare_rate:,.0f}/s, p99 {bare_p99:.1f} ms"),
        Row("ingest, AOF on, unique keys", f"{median(ours.rate for _, ours in pairs):,.0f}/s"),
        Row("ingest : bare handler", f"{ratio:.2f}", "0.60 or more", ratio >= 0.6),
        _saturated([ours for _, ours in pairs], 5),
    ]


def _with_dispatcher(busy: list[Measured]) -> list[Row]:
    refused = sum(run.refused for run in busy)
    return [
        Row("ingest with the dispatcher running", f"{median(run.rate for run in busy):,.0f}/s"),
        _saturated(busy, 10),
        Row("its refusals", str(refused), "0", refused == 0),
    ]


class Settled(Struct, frozen=True):
    """One run: deliveries per second, what the ledger can't explain, and the server's time per delivery
    beside that of the commands alone, microseconds."""

    rate: float
    gap: int
    server: float
    floor: float


async def settle(stack: Stack, server: Server, progress: Progress, alerts: int) -> Settled:
    """One dispatcher against a full queue, every guarantee on, beside the commands alone."""
    redis = server.client()
    try:
        await redis.flushall()
        await fill(redis, server, progress, alerts)
        bare = await floor(redis, NAMESPACE, "sink")
        await redis.flushall()
        await fill(redis, server, progress, alerts)
        path = stack.config(config(server, free_port()))
        before = await cpu(redis)
        dispatcher = await stack.module("dispatcher", path, name=f"drain-{len(stack.started)}")
        rate, gap = await watch(redis, dispatcher, progress, alerts)
        used = await cpu(redis) - before
        await dispatcher.stop()
    finally:
        await redis.aclose()
    return Settled(rate, gap, used / alerts, bare)


def _settled(runs: list[Settled]) -> list[Row]:
    rates = [run.rate for run in runs]
    middle, gaps = median(rates), sum(run.gap for run in runs)
    here, bare = median(run.server for run in runs), median(run.floor for run in runs)
    return [
        Row("dispatcher to discard", f"{middle:,.0f} deliveries/s", "40,000 or more", middle >= 40_000),
        Row("its slowest and fastest run", f"{min(rates):,.0f} to {max(rates):,.0f}"),
        Row("server time per delivery : bare commands", f"{here:.1f} : {bare:.1f} us = {here / bare:.2f}"),
        Row("its ledgers afterwards", f"{gaps} unaccounted", "0", gaps == 0),
    ]


def _posted(rounds: list[webhook.Round]) -> list[Row]:
    bare, kind, whole = (
        median(getattr(each, way).rate for each in rounds) for way in ("bare", "kind", "dispatcher")
    )
    ratio = median(each.kind.rate / each.bare.rate for each in rounds)
    through = median(each.dispatcher.rate / each.bare.rate for each in rounds)
    bare_cpu = median(each.bare.client for each in rounds)
    kind_cpu = median(each.kind.client for each in rounds)
    busy = max(run.receiver for each in rounds for run in (each.bare, each.kind, each.dispatcher))
    return [
        Row("bare aiohttp client", f"{bare:,.0f}/s"),
        Row("webhook, signed", f"{kind:,.0f}/s"),
        Row("webhook : bare client", f"{ratio:.2f}", "0.80 or more", ratio >= 0.8),
        Row("CPU of one : of the other", f"{kind_cpu:.0f} : {bare_cpu:.0f} us"),
        Row("dispatcher to webhook", f"{whole:,.0f}/s"),
        Row("dispatcher to webhook : bare client", f"{through:.2f}"),
        Row("their receiver, at most", f"{busy:.0%} of a core", "under 70%", busy < 0.7),
    ]


def _beside_broken(pairs: list[neighbours.Beside]) -> list[Row]:
    alone, crowded, good = neighbours.medians(pairs)
    return [
        Row("a destination alone, p99 at 300/s", f"{alone:.1f} ms"),
        Row("beside four broken ones", f"{crowded:.1f} ms", "within 1.5 times, or 5 ms", good),
    ]


def _came_back(back: outage.Comeback) -> list[Row]:
    return [
        Row("requests before the first answer", str(back.probes), "1", back.probes == 1),
        Row("one second : the one before, at most", f"{back.steepest:.2f}", "2.00", back.steepest <= 2),
        Row("a tenth of a second : the mean of its second", f"{back.fullest:.2f}", "2.00", back.fullest <= 2),
        Row("all that waited has arrived", f"{back.requests} requests in {back.seconds:.1f} s"),
        Row("its ledger afterwards", f"{back.unaccounted} unaccounted", "0", back.unaccounted == 0),
    ]


def _beside_hostile(runs: list[hostile.Beside]) -> list[Row]:
    return [
        Row(
            f"senders {hostile.NAMES[run.kind]}, p50 and p99",
            f"{run.p50:.1f} and {run.p99:.1f} ms, {run.refused} refused, {run.memory:.0f} MiB",
            f"p99 under {hostile.TARGET:.0f} ms, 0 refused",
            run.p99 < hostile.TARGET and not run.refused,
        )
        for run in runs
    ]


def _by_lines(runs: list[ndjson.Beside]) -> list[Row]:
    through, alone = (median(rates) for rates in zip(*((r.ingest, r.script) for r in runs), strict=True))
    ratio = median(run.ingest / run.script for run in runs)
    good = ratio >= ndjson.TARGET
    return [
        Row("append script alone", f"{alone:,.0f} alerts/s"),
        Row(f"ingest, bodies of {ndjson.LINES} lines", f"{through:,.0f} alerts/s"),
        Row("ingest : append script", f"{ratio:.2f}", f"{ndjson.TARGET:.2f} or more", good),
    ]


def _looked(seen: backlog.Looked) -> list[Row]:
    scrape, work = backlog.SCRAPE, backlog.WORK
    return [
        Row(
            f"/metrics, {seen.alerts:,} waiting",
            f"median {seen.median:.1f} ms, p99 {seen.p99:.1f}",
            f"median under {scrape} ms",
            seen.median < scrape,
        ),
        Row(
            "its figures cost Redis",
            f"{seen.figures:.2f} ms/s, looks at the gate {seen.all_else:.2f}",
            f"figures under {work} ms/s",
            seen.figures < work,
        ),
    ]


def _costing(seen: scaling.Scale) -> list[Row]:
    return [
        *(
            Row(
                f"CPU per alert at {cost.rate:,.0f}/s: ingest, dispatcher, server",
                f"{cost.ingest:.0f}, {cost.dispatcher:.0f}, {cost.server:.0f} us",
            )
            for cost in seen.costs
        ),
        Row("memory of a waiting delivery", f"{seen.kept.waiting:.0f} bytes"),
        Row("memory of what is remembered of one", f"{seen.kept.remembered:.0f} bytes"),
        Row("connections of an ingest process, of a dispatcher", f"{seen.ingest}, {seen.dispatcher}"),
    ]


async def watch(redis: Redis, dispatcher: Process, progress: Progress, alerts: int) -> tuple[float, int]:
    """Deliveries per second from the first to the last that was seen, and what the ledger can't explain."""
    task = progress.add_task("settling", total=alerts)
    first: tuple[float, int] | None = None
    while True:
        seen = await snapshot(redis, NAMESPACE, "sink")
        now, done = time.perf_counter(), seen.ledger.delivered
        progress.update(task, completed=done)
        if first is None and done:
            first = (now, done)
        if first is not None and seen.depth == 0:
            return (done - first[1]) / (now - first[0]), seen.unaccounted
        if dispatcher.code is not None:
            raise Broken(f"the dispatcher ended by itself\n{dispatcher.last_words()}")
        await asyncio.sleep(LOOK)


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
                rows += _settled(runs)
            if "webhook" in parts:
                rows += _posted(await webhook.compare(stack, server, progress, rounds, alerts // 10))
            if "neighbours" in parts:
                rows += _beside_broken(await neighbours.beside(stack, server, progress, rounds, seconds))
            if "outage" in parts:
                rows += _came_back(await outage.comeback(stack, server, progress, alerts // 20))
            if "hostile" in parts:
                rows += _beside_hostile(await hostile.beside(stack, server, progress, seconds))
            if "ndjson" in parts:
                rows += _by_lines(
                    await ndjson.beside(stack, server, progress, rounds, alerts // ndjson.LINES)
                )
            if "backlog" in parts:
                rows += _looked(await backlog.look(stack, server, progress, 10 * alerts, 2 * seconds))
            if "scaling" in parts:
                rows += _costing(await scaling.measure(stack, server, progress, 2 * seconds, alerts // 2))
    return rows


def table(rows: list[Row]) -> Table:
    """For people."""
    drawn = Table("what", "here", "target", "")
    for row in rows:
        verdict = "" if row.good is None else "[green]met[/]" if row.good else "[red]missed[/]"
        drawn.add_row(row.what, row.figure, row.target, verdict)
    return drawn


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

"""What `make bench` says of each part: takes what was measured, returns rows, the targets beside. Pure."""

from __future__ import annotations

from statistics import median

from msgspec import Struct
from rich.table import Table

from benchmarks import backlog, hostile, ndjson, neighbours, outage, scaling, webhook
from benchmarks.drain import Settled
from benchmarks.load import CONNECTIONS, Measured


class Row(Struct, frozen=True):
    """One figure; `good` is None where there is no target."""

    what: str
    figure: str
    target: str = ""
    good: bool | None = None


def _saturated(runs: list[Measured], target: float) -> Row:
    rate, p50, p99 = (median(values) for values in zip(*((r.rate, r.p50, r.p99) for r in runs), strict=True))
    figure = f"{p50:.1f} and {p99:.1f} ms, mean {CONNECTIONS * 1000 / rate:.1f}"
    what = f"its p50 and p99, {CONNECTIONS} saturating connections"
    return Row(what, figure, f"p99 under {target:.0f} ms", p99 < target)


def ingest_beside_bare(pairs: list[tuple[Measured, Measured]]) -> list[Row]:
    """Ingest and the bare handler, in turns."""
    ratio = median(ours.rate / bare.rate for bare, ours in pairs)
    bare_rate, bare_p99 = (median(getattr(bare, name) for bare, _ in pairs) for name in ("rate", "p99"))
    return [
        Row("bare aiohttp handler", f"{bare_rate:,.0f}/s, p99 {bare_p99:.1f} ms"),
        Row("ingest, AOF on, unique keys", f"{median(ours.rate for _, ours in pairs):,.0f}/s"),
        Row("ingest : bare handler", f"{ratio:.2f}", "0.60 or more", ratio >= 0.6),
        _saturated([ours for _, ours in pairs], 5),
    ]


def ingest_with_dispatcher(busy: list[Measured]) -> list[Row]:
    """Ingest beside a dispatcher that works."""
    refused = sum(run.refused for run in busy)
    return [
        Row("ingest with the dispatcher running", f"{median(run.rate for run in busy):,.0f}/s"),
        _saturated(busy, 10),
        Row("its refusals", str(refused), "0", refused == 0),
    ]


def settled(runs: list[Settled]) -> list[Row]:
    """A dispatcher and a full queue."""
    rates = [run.rate for run in runs]
    middle, gaps = median(rates), sum(run.gap for run in runs)
    here, bare = median(run.server for run in runs), median(run.floor for run in runs)
    return [
        Row("dispatcher to discard", f"{middle:,.0f} deliveries/s", "40,000 or more", middle >= 40_000),
        Row("its slowest and fastest run", f"{min(rates):,.0f} to {max(rates):,.0f}"),
        Row("server time per delivery : bare commands", f"{here:.1f} : {bare:.1f} us = {here / bare:.2f}"),
        Row("its ledgers afterwards", f"{gaps} unaccounted", "0", gaps == 0),
    ]


def posted(rounds: list[webhook.Round]) -> list[Row]:
    """The webhook and a bare client."""
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


def beside_broken(pairs: list[neighbours.Beside]) -> list[Row]:
    """A destination beside broken ones."""
    alone, crowded, good = neighbours.medians(pairs)
    return [
        Row("a destination alone, p99 at 300/s", f"{alone:.1f} ms"),
        Row("beside four broken ones", f"{crowded:.1f} ms", "within 1.5 times, or 5 ms", good),
    ]


def came_back(back: outage.Comeback) -> list[Row]:
    """A destination that comes back."""
    return [
        Row("requests before the first answer", str(back.probes), "1", back.probes == 1),
        Row("one second : the one before, at most", f"{back.steepest:.2f}", "2.00", back.steepest <= 2),
        Row("a tenth of a second : the mean of its second", f"{back.fullest:.2f}", "2.00", back.fullest <= 2),
        Row("all that waited has arrived", f"{back.requests} requests in {back.seconds:.1f} s"),
        Row("its ledger afterwards", f"{back.unaccounted} unaccounted", "0", back.unaccounted == 0),
    ]


def beside_hostile(runs: list[hostile.Beside]) -> list[Row]:
    """Senders beside hostile ones."""
    return [
        Row(
            f"senders {hostile.NAMES[run.kind]}, p50 and p99",
            f"{run.p50:.1f} and {run.p99:.1f} ms, {run.refused} refused, {run.memory:.0f} MiB",
            f"p99 under {hostile.TARGET:.0f} ms, 0 refused",
            run.p99 < hostile.TARGET and not run.refused,
        )
        for run in runs
    ]


def by_lines(runs: list[ndjson.Beside]) -> list[Row]:
    """Bodies of many lines beside the script."""
    through, alone = (median(rates) for rates in zip(*((r.ingest, r.script) for r in runs), strict=True))
    ratio = median(run.ingest / run.script for run in runs)
    good = ratio >= ndjson.TARGET
    return [
        Row("append script alone", f"{alone:,.0f} alerts/s"),
        Row(f"ingest, bodies of {ndjson.LINES} lines", f"{through:,.0f} alerts/s"),
        Row("ingest : append script", f"{ratio:.2f}", f"{ndjson.TARGET:.2f} or more", good),
    ]


def looked(seen: backlog.Looked) -> list[Row]:
    """What figures cost behind a backlog."""
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


def costing(seen: scaling.Scale) -> list[Row]:
    """What an alert costs."""
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


def table(rows: list[Row]) -> Table:
    """For people."""
    drawn = Table("what", "here", "target", "")
    for row in rows:
        verdict = "" if row.good is None else "[green]met[/]" if row.good else "[red]missed[/]"
        drawn.add_row(row.what, row.figure, row.target, verdict)
    return drawn

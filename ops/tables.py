"""What status and ledger look like: rich tables, lines where a terminal is too narrow for them, and JSON.

Takes snapshots; returns renderables or what msgspec encodes. Texts from outside are made harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from common.snapshot import Ledger, Snapshot
from ops.text import age, count, moment, plain

COUNTERS = Ledger.__struct_fields__
NARROWEST_NAME = 11  # columns in which names are folded


class Seen(Struct, frozen=True):
    """One destination as status shows it; `rate` is deliveries per second, None when nobody measured it."""

    snapshot: Snapshot
    removed: bool
    rate: float | None = None


class Unseen(Struct, frozen=True):
    """A destination whose server did not answer; `error` is a sentence."""

    name: str
    removed: bool
    error: str


def destination_json(seen: Seen) -> dict[str, Any]:
    """An item of `destinations` in `status --json`."""
    one = seen.snapshot
    until = one.gate.get("until", "")
    measured = {} if seen.rate is None else {"rate": round(seen.rate, 3)}
    return {
        "name": one.destination,
        "depth": one.depth,
        "in_flight": one.in_flight,
        "retrying": one.retrying,
        "dead_letters": one.dead_letters,
        "oldest_age_seconds": _oldest(one),
        "gate": {
            "state": one.gate.get("state", "open"),
            "reason": one.gate.get("reason") or None,
            "until": moment(int(until)) if until.isdecimal() else None,
        },
        "consumers": one.consumers,
        "removed": seen.removed,
        **measured,
    }


def unseen_json(one: Unseen) -> dict[str, Any]:
    """An item of `destinations` in `status --json`: the same with nulls, and `error`."""
    return {
        "name": one.name,
        **dict.fromkeys(("depth", "in_flight", "retrying", "dead_letters", "oldest_age_seconds")),
        "gate": {"state": None, "reason": None, "until": None},
        "consumers": None,
        "removed": one.removed,
        "error": one.error,
    }


def ledger_json(one: Snapshot) -> dict[str, Any]:
    """An item of `ledger` in `status --json`."""
    return {"destination": one.destination, **structs.asdict(one.ledger), "unaccounted": one.unaccounted}


class Fitting:
    """The table where its `width` fits, else the lines: a number that is cut off would be another number."""

    def __init__(self, table: Table, width: int, lines: Sequence[Text]) -> None:
        self._table = table
        self._width = width
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """For rich."""
        fits = self._width <= options.max_width
        yield self._table if fits else Group("", *self._lines, "")


def status(seen: Sequence[Seen], title: str, unseen: Sequence[Unseen] = ()) -> RenderableType:
    """Both tables, and between them a line for everything that somebody should know."""
    table = _destinations(seen, unseen)
    away = [Text(f"{one.name}: not seen", "bold red") for one in unseen]
    return Group(
        Text(title),
        Fitting(table, _width(table), [*(_destination_line(each) for each in seen), *away]),
        *(Text(f"{one.name} was not seen: {one.error}", "bold red") for one in unseen),
        *(Text(note, "yellow") for each in seen for note in notes(each)),
        ledger([each.snapshot for each in seen]),
    )


def notes(seen: Seen) -> list[str]:
    """What is not as it should be with one destination."""
    one, found = seen.snapshot, []
    if "state" in one.gate:
        found.append(_gate(one))
    if seen.removed and one.depth:
        waiting = count(one.depth, "delivery waits", "deliveries wait")
        found.append(f"{one.destination} is not in the configuration: {waiting}, and nobody sends them")
    if one.unaccounted:
        found.append(f"{one.destination}: the ledger does not balance, see `redispatch ledger`")
    if one.groups > 1:
        found.append(f"{one.destination}: {one.groups} groups read its stream, there should be one")
    return found


def ledger(snapshots: Sequence[Snapshot]) -> RenderableType:
    """A row per destination. Headings are hyphenated so that it fits."""
    table = _ledger(snapshots)
    return Fitting(table, _width(table), [_ledger_line(one) for one in snapshots])


def _ledger(snapshots: Sequence[Snapshot]) -> Table:
    headings = ("accep-\nted", "re-\nplayed", "deli-\nvered", "dupli-\ncate", "super-\nseded", "died")
    table = _table("destination", *headings, "dis-\ncarded", "lost", "unac-\ncounted", gap=0)
    for one in snapshots:
        counters = [str(getattr(one.ledger, name)) for name in COUNTERS]
        table.add_row(_name(one.destination), *counters, _alarming(one.unaccounted))
    return table


def equations(one: Snapshot) -> list[str]:
    """The two sums of a ledger that does not balance, and by how much they differ."""
    book = one.ledger
    return [
        f"{one.destination}: accepted {book.accepted} + replayed {book.replayed} is to be delivered "
        f"{book.delivered} + duplicate {book.duplicate} + superseded {book.superseded} + died {book.died} "
        f"+ lost {book.lost} + depth {one.depth}: {_difference(book.missing(one.depth), 'delivery')}",
        f"{one.destination}: died {book.died} is to be replayed {book.replayed} + discarded "
        f"{book.discarded} + dead letters {one.dead_letters}: "
        f"{_difference(book.missing_dead(one.dead_letters), 'dead letter')}",
    ]


def _difference(missing: int, what: str) -> str:
    if not missing:
        return "it is"
    many = "deliveries" if what == "delivery" else None
    return f"{count(abs(missing), what, many)} {'missing' if missing > 0 else 'too many'}"


def _destinations(seen: Sequence[Seen], unseen: Sequence[Unseen]) -> Table:
    measured = any(each.rate is not None for each in seen)
    table = _table("destination", "depth", "in\nflight", "retry-\ning", "dead\nletters", "oldest")
    table.add_column("gate", no_wrap=True)
    table.add_column("con-\nsumers", justify="right", no_wrap=True)
    if measured:
        table.add_column("per\nsecond", justify="right", no_wrap=True)
    for each in seen:
        one = each.snapshot
        state = plain(one.gate.get("state", "open"))
        row: list[str | Text] = [
            Text(f"{one.destination} (removed)", "yellow") if each.removed else _name(one.destination),
            *map(str, (one.depth, one.in_flight, one.retrying, one.dead_letters)),
            age(_oldest(one)),
            state if state == "open" else Text(state, "bold yellow"),
            str(one.consumers),
        ]
        table.add_row(*row, *([f"{each.rate or 0:.1f}"] if measured else []))
    for away in unseen:
        name = f"{away.name} (removed)" if away.removed else away.name
        rest = ["-"] * (2 if measured else 1)
        table.add_row(Text(name, "bold red"), *["-"] * 5, Text("not seen", "bold red"), *rest)
    return table


def _destination_line(seen: Seen) -> Text:
    one = seen.snapshot
    name = f"{one.destination} (removed)" if seen.removed else one.destination
    parts = [
        *(f"depth {one.depth}", f"in flight {one.in_flight}", f"retrying {one.retrying}"),
        *(f"dead letters {one.dead_letters}", f"oldest {age(_oldest(one))}"),
        *(f"gate {plain(one.gate.get('state', 'open'))}", f"consumers {one.consumers}"),
        *([] if seen.rate is None else [f"per second {seen.rate:.1f}"]),
    ]
    return Text(f"{name}: {', '.join(parts)}", "yellow" if notes(seen) else "")


def _ledger_line(one: Snapshot) -> Text:
    parts = [f"{name} {getattr(one.ledger, name)}" for name in COUNTERS]
    told = f"{one.destination}: {', '.join(parts)}, unaccounted "
    return Text.assemble(told, _alarming(one.unaccounted))


def _width(table: Table) -> int:
    """Columns that it takes at least, with nothing cut off and names folded."""
    edges, gap = 2, table.padding[1]
    widths = [
        max(cell_len(line) for cell in (column.header, *column.cells) for line in str(cell).split("\n"))
        for column in table.columns
    ]
    return edges + min(widths[0], NARROWEST_NAME) + sum(widths[1:]) + (len(widths) - 1) * (1 + gap)


def _table(first: str, *numbers: str, gap: int = 1) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold")
    table.add_column(first, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)  # only names are folded
    return table


def _name(name: str) -> Text:
    return Text(plain(name))


def _alarming(unaccounted: int) -> Text:
    return Text(str(unaccounted), "bold red" if unaccounted else "")


def _gate(one: Snapshot) -> str:
    gate = one.gate
    since = f" since {moment(int(gate['opened_at']))}" if gate.get("opened_at", "").isdecimal() else ""
    until = f" until {moment(int(gate['until']))}" if gate.get("until", "").isdecimal() else ""
    why = f" ({plain(gate['reason'])})" if gate.get("reason") else ""
    state = plain(gate["state"])
    told = state if state in ("paused", "gone") else f"closed ({state})"
    return f"{one.destination} is {told}{since}{until}{why}: nothing is sent, max_age counts"


def _oldest(one: Snapshot) -> float | None:
    return None if one.oldest_at is None else max(0, one.now - one.oldest_at) / 1000

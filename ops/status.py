"""`redispatch status`: every destination at one instant each, once, as JSON, or again and again."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import click
import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from common import connect
from common.settings import Settings
from common.snapshot import Snapshot, snapshot
from ops import options, reach, tables
from ops.tables import Seen

# Is given what was seen last, and why nothing newer was, "" mostly.
Show: TypeAlias = Callable[[Sequence[Seen], str], None]

EVERY = 1.0  # seconds between two looks of --watch


@click.command()
@options.config_option
@click.option("--watch", is_flag=True, help="Look again every second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="For programs; with --watch one line per look.")
def status(config: str | None, watch: bool, as_json: bool) -> None:
    """Show what waits, what died and what is paused.

    One row per destination; those that left the configuration are marked as removed. The second table is
    the ledger, in which nothing may be unaccounted for. With --watch also the deliveries per second; it goes
    on while Redis is away. Exit code 0, also after Ctrl-C; 1 when Redis can't be reached or used.
    """
    settings = options.settings(config)
    if watch:
        shown = _lines(settings) if as_json else _live(settings)
        with contextlib.suppress(KeyboardInterrupt), shown as show:  # Ctrl-C is the way to end it
            reach.run(settings, lambda redis: _watch(redis, settings, show))
        return
    seen = reach.run(settings, lambda redis: look(redis, settings))
    if as_json:
        options.print_json(document(settings, seen))
    else:
        Console(highlight=False).print(tables.status(seen, title(settings)))


async def look(redis: Redis, settings: Settings) -> list[Seen]:
    """All destinations, those of the file first."""
    known = await reach.names(redis, settings)
    return [
        Seen(await snapshot(redis, settings.redis.namespace, name), removed)
        for name, removed in known.items()
    ]


def document(settings: Settings, seen: Sequence[Seen]) -> dict[str, Any]:
    """`status --json`."""
    return {
        "redis": {"url": connect.masked(settings.redis.url)},
        "destinations": [tables.destination_json(each) for each in seen],
        "ledger": [tables.ledger_json(each.snapshot) for each in seen],
    }


@contextlib.contextmanager
def _lines(settings: Settings) -> Iterator[Show]:
    """A JSON document per look; what Redis refuses goes to stderr."""

    def show(seen: Sequence[Seen], fault: str) -> None:
        if fault:
            click.echo(fault, err=True)
        else:
            click.echo(msgspec.json.encode(document(settings, seen)))

    yield show


@contextlib.contextmanager
def _live(settings: Settings) -> Iterator[Show]:
    """Tables that replace one another; where nothing can be replaced, one below the other."""
    console = Console(highlight=False)

    def made(seen: Sequence[Seen], fault: str) -> RenderableType:
        head = f"{title(settings)}, {time.strftime('%H:%M:%S')}"
        trouble = [Text(fault, "bold red")] if fault else []
        return Group(*trouble, *([tables.status(seen, head)] if seen else []))

    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda seen, fault: live.update(made(seen, fault), refresh=True)
    else:
        yield lambda seen, fault: console.print(made(seen, fault))


async def _watch(redis: Redis, settings: Settings, show: Show) -> None:
    """Until cancelled."""
    before: dict[str, Snapshot] = {}
    seen: list[Seen] = []
    while True:
        try:
            seen = [rated(each, before) for each in await look(redis, settings)]
        except RedisError as fault:
            show(seen, connect.describe(fault, settings.redis.url))
        else:
            show(seen, "")
            before = {each.snapshot.destination: each.snapshot for each in seen}
        await asyncio.sleep(EVERY)


def rated(seen: Seen, before: dict[str, Snapshot]) -> Seen:
    """With the deliveries per second since the look before."""
    one = seen.snapshot
    earlier = before.get(one.destination, one)
    passed = (one.now - earlier.now) / 1000
    done = one.ledger.delivered - earlier.ledger.delivered
    return Seen(one, seen.removed, done / passed if passed > 0 else 0.0)


def title(settings: Settings) -> str:
    """Which server and namespace it is."""
    return f"{connect.masked(settings.redis.url)}, namespace {settings.redis.namespace}"

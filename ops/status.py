"""`redispatch status`: every destination at one instant each, once, as JSON, or again and again."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import click
import msgspec
from msgspec import Struct, structs
from redis.asyncio import Redis
from redis.exceptions import RedisError
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from common import connect
from common.settings import Settings
from common.snapshot import Snapshot
from ops import options, reach, tables
from ops.tables import Seen, Unseen


class Looked(Struct, frozen=True):
    """What one look came to. `unlisted`: why there may be destinations that left the configuration."""

    seen: list[Seen]
    unseen: list[Unseen]
    unlisted: str = ""

    @property
    def whole(self) -> bool:
        """Whether everything was seen."""
        return not (self.unseen or self.unlisted)


# Is given what was seen last, and why nothing newer was, "" mostly.
Show: TypeAlias = Callable[[Looked, str], None]

EVERY = 1.0  # seconds between two looks of --watch


@click.command()
@options.config_option
@click.option("--watch", is_flag=True, help="Look again every second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="For programs; with --watch one line per look.")
@click.pass_context
def status(ctx: click.Context, config: str | None, watch: bool, as_json: bool) -> None:
    """Show what waits, what died and what is paused.

    One row per destination; those that left the configuration are marked as removed. The second table is
    the ledger, in which nothing may be unaccounted for. With --watch also the deliveries per second; it goes
    on while Redis is away. Where a server of a Cluster is away, the others' destinations are shown. Exit code
    0, also after Ctrl-C; 1 when Redis can't be reached or used, and when not everything was seen.
    """
    settings = options.settings(config)
    if watch:
        shown = _lines(settings) if as_json else _live(settings)
        with contextlib.suppress(KeyboardInterrupt), shown as show:  # Ctrl-C is the way to end it
            reach.run(settings, lambda redis: _watch(redis, settings, show), partly=True)
        return
    looked = reach.run(settings, lambda redis: look(redis, settings), partly=True)
    if as_json:
        options.print_json(document(settings, looked))
    else:
        Console(highlight=False).print(_shown(looked, title(settings)))
    ctx.exit(0 if looked.whole else 1)


async def look(redis: Redis, settings: Settings) -> Looked:
    """All destinations, those of the file first. Raises what redis-py does when none could be seen."""
    url = settings.redis.url
    known, fault = await reach.listed(redis, settings, {})
    found = await reach.snapshots(redis, settings.redis.namespace, list(known))
    seen, unseen = [], []
    for name, one in found.items():
        if isinstance(one, RedisError):
            unseen.append(Unseen(name, known[name], connect.describe(one, url)))
        else:
            seen.append(Seen(one, known[name]))
    return Looked(seen, unseen, "" if fault is None else connect.describe(fault, url))


def document(settings: Settings, looked: Looked) -> dict[str, Any]:
    """`status --json`."""
    unlisted = {"error": looked.unlisted} if looked.unlisted else {}
    return {
        "redis": {"url": connect.masked(settings.redis.url), **unlisted},
        "destinations": [
            *(tables.destination_json(each) for each in looked.seen),
            *(tables.unseen_json(each) for each in looked.unseen),
        ],
        "ledger": [tables.ledger_json(each.snapshot) for each in looked.seen],
    }


def _shown(looked: Looked, head: str) -> RenderableType:
    """The tables."""
    told = f"which destinations left the configuration was not seen: {looked.unlisted}"
    more = [Text(told, "bold red")] if looked.unlisted else []
    return Group(*more, tables.status(looked.seen, head, looked.unseen))


@contextlib.contextmanager
def _lines(settings: Settings) -> Iterator[Show]:
    """A JSON document per look; what Redis refuses goes to stderr."""

    def show(looked: Looked, fault: str) -> None:
        if fault:
            click.echo(fault, err=True)
        else:
            click.echo(msgspec.json.encode(document(settings, looked)))

    yield show


@contextlib.contextmanager
def _live(settings: Settings) -> Iterator[Show]:
    """Tables that replace one another; where nothing can be replaced, one below the other."""
    console = Console(highlight=False)

    def made(looked: Looked, fault: str) -> RenderableType:
        head = f"{title(settings)}, {time.strftime('%H:%M:%S')}"
        trouble = [Text(fault, "bold red")] if fault else []
        return Group(*trouble, *([_shown(looked, head)] if looked.seen else []))

    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda looked, fault: live.update(made(looked, fault), refresh=True)
    else:
        yield lambda looked, fault: console.print(made(looked, fault))


async def _watch(redis: Redis, settings: Settings, show: Show) -> None:
    """Until cancelled."""
    before: dict[str, Snapshot] = {}
    looked = Looked([], [])
    while True:
        try:
            looked = await look(redis, settings)
        except RedisError as fault:
            show(looked, connect.describe(fault, settings.redis.url))
        else:
            looked = structs.replace(looked, seen=[rated(each, before) for each in looked.seen])
            show(looked, "")
            before |= {each.snapshot.destination: each.snapshot for each in looked.seen}
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

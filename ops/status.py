"""`redispatch status`: every destination at one instant each, once, as JSON, or again and again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import click
import msgspec
from redis.asyncio import Redis
from rich.console import Console
from rich.live import Live

from common import connect
from common.settings import Settings
from common.snapshot import Snapshot, snapshot
from ops import options, reach, tables
from ops.tables import Seen

EVERY = 1.0  # seconds between two looks of --watch


@click.command()
@options.config_option
@click.option("--watch", is_flag=True, help="Look again every second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="For programs; one document.")
def status(config: str | None, watch: bool, as_json: bool) -> None:
    """Show what waits, what died and what is paused.

    One row per destination; those that left the configuration are marked as removed. The second table is
    the ledger, in which nothing may be unaccounted for. Exit code 0; 1 when Redis can't be reached or used.
    """
    if watch and as_json:
        raise click.UsageError("--watch and --json exclude each other")
    settings = options.settings(config)
    if watch:
        with contextlib.suppress(KeyboardInterrupt):  # the way to end it
            reach.run(settings, lambda redis: _watch(redis, settings))
        return
    seen = reach.run(settings, lambda redis: look(redis, settings))
    if as_json:
        click.echo(as_document(settings, seen))
    else:
        Console(highlight=False).print(tables.status(seen, _title(settings)))


async def look(redis: Redis, settings: Settings) -> list[Seen]:
    """All destinations, those of the file first."""
    known = await reach.names(redis, settings)
    return [
        Seen(await snapshot(redis, settings.redis.namespace, name), removed)
        for name, removed in known.items()
    ]


def as_document(settings: Settings, seen: Sequence[Seen]) -> str:
    """`status --json`."""
    document = {
        "redis": {"url": connect.masked(settings.redis.url)},
        "destinations": [tables.destination_json(each) for each in seen],
        "ledger": [tables.ledger_json(each.snapshot) for each in seen],
    }
    return msgspec.json.format(msgspec.json.encode(document)).decode()


async def _watch(redis: Redis, settings: Settings) -> None:
    """Until cancelled."""
    before: dict[str, Snapshot] = {}
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        while True:
            seen = [_rated(each, before) for each in await look(redis, settings)]
            live.update(tables.status(seen, _title(settings)), refresh=True)
            before = {each.snapshot.destination: each.snapshot for each in seen}
            await asyncio.sleep(EVERY)


def _rated(seen: Seen, before: dict[str, Snapshot]) -> Seen:
    """With the deliveries per second since the look before."""
    one = seen.snapshot
    earlier = before.get(one.destination, one)
    passed = (one.now - earlier.now) / 1000
    done = one.ledger.delivered - earlier.ledger.delivered
    return Seen(one, seen.removed, done / passed if passed > 0 else 0.0)


def _title(settings: Settings) -> str:
    return f"{connect.masked(settings.redis.url)}, namespace {settings.redis.namespace}"

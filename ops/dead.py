"""`redispatch dead`: list, show, replay, discard and export dead letters.

Each command gathers what was asked for (`filters`), reads it page by page (`letters`) or moves it in batches
(`move`), and says what came of it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec
from redis.asyncio import Redis
from rich.console import Console

from common.objects import Objects
from common.settings import Settings
from ops import letters, move, options, reach
from ops.carry_out import Job, carry_out
from ops.fetch import filled
from ops.filters import Chosen, Id, filters
from ops.letters import Letter
from ops.progress import looking
from ops.show import as_text, table
from ops.text import count

NOTHING = "no dead letter matches"

_dry_run = click.option("--dry-run", is_flag=True, help="Only say how many it would be.")
_ids = click.argument("ids", nargs=-1, type=Id(), metavar="[ID]...")


@click.group()
def dead() -> None:
    """List, show, replay, discard, export dead letters."""


@dead.command("list")
@options.config_option
@filters(limit=100, most=10_000)
@options.json_option
def list_(config: str | None, as_json: bool, **asked: Any) -> None:
    """List dead letters, oldest first.

    For more than --limit allows there is export. Exit code 0, also when there is none; 1 when Redis can't be
    used or there is no such destination.
    """
    settings, chosen = options.settings(config), Chosen(**asked)
    found = reach.run(settings, lambda redis: _found(redis, settings, chosen, whole=False))
    if as_json:
        options.print_json([letters.summary(letter) for letter in found])
    elif not found:
        click.echo(NOTHING)
    else:
        Console(highlight=False).print(table(found))
        if len(found) == chosen.limit:
            click.echo(f"{count(len(found), 'is shown', 'are shown')}, there may be more: --limit")


@dead.command()
@options.config_option
@_ids
@filters(limit=10, most=100)
@options.json_option
def show(config: str | None, as_json: bool, **asked: Any) -> None:
    """Show dead letters with all that is known of them.

    Those with the given ids, or those that the options choose. Exit code 0; 1 when there is none, Redis
    can't be used, or there is no such destination.
    """
    settings, chosen = options.settings(config), Chosen(**asked)
    found = reach.run(settings, lambda redis: _filled(redis, settings, chosen))
    if as_json:
        options.print_json([letters.whole(letter) for letter in found])
    elif found:
        click.echo("\n\n".join(as_text(letter) for letter in found))
    if not found:
        raise click.ClickException(NOTHING)


@dead.command()
@options.config_option
@filters(limit=None)
@click.option("--output", "-o", type=click.Path(dir_okay=False), help="A file instead of stdout.")
def export(config: str | None, output: str | None, **asked: Any) -> None:
    """Write dead letters as NDJSON.

    One line each, with the alert as it was stored; nothing is changed or removed. Exit code 0; 1 when Redis
    can't be used, the file can't be written, or there is no such destination.
    """
    settings, chosen = options.settings(config), Chosen(**asked)
    with contextlib.ExitStack() as stack:
        to = stack.enter_context(Path(output).open("wb")) if output else sys.stdout.buffer
        written = reach.run(settings, lambda redis: _exported(redis, settings, chosen, to))
        to.flush()
    click.echo(f"{count(written, 'dead letter')} exported", err=True)


@dead.command()
@options.config_option
@_ids
@filters(limit=None)
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="So many per second.")
@click.option("--force", is_flag=True, help="Send again also what was delivered meanwhile.")
@click.option("--yes", is_flag=True, hidden=True, expose_value=False)  # replay never asks
@_dry_run
@options.json_option
def replay(
    config: str | None, rate: float | None, force: bool, dry_run: bool, as_json: bool, **asked: Any
) -> None:
    """Send dead letters again.

    They go back to the queue, each with a fresh count of attempts; a destination stops when its queue is at
    its cap. What was delivered meanwhile is recognised and not sent twice, unless --force. Interrupted, it
    can be run again for the rest. Exit code 0; 1 when a queue was full, Redis can't be used or there is no
    such destination; 130 when interrupted.
    """
    settings = options.settings(config)
    job = Job(settings, Chosen(**asked), "replay", "replayed", dry_run, as_json)

    async def moving(run: move.Run, names: Sequence[str]) -> list[move.Moved]:
        return await move.replay(run, names, settings.queue.max_depth, move.Pace(rate), force)

    carry_out(job, moving)


@dead.command()
@options.config_option
@_ids
@filters(limit=None)
@_dry_run
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.json_option
def discard(config: str | None, dry_run: bool, yes: bool, as_json: bool, **asked: Any) -> None:
    """Remove dead letters for good.

    Asks first, unless --yes. Exit code 0; 1 when the answer is no, nobody can be asked, Redis can't be used
    or there is no such destination; 130 when interrupted.
    """
    job = Job(options.settings(config), Chosen(**asked), "discard", "discarded", dry_run, as_json)
    carry_out(job, move.discard, asks=not yes)


async def _found(redis: Redis, settings: Settings, chosen: Chosen, *, whole: bool) -> list[Letter]:
    """As many as the limit says; without their alerts unless `whole`."""
    names = await reach.choose(redis, settings, chosen.destinations)
    wanted = chosen.wanted(await reach.now(redis))
    namespace, found = settings.redis.namespace, list[Letter]()
    with looking(await letters.length(redis, namespace, list(names))) as told:
        async for page in letters.pages(redis, namespace, list(names), wanted, told):
            found += page if whole else [letters.without_alert(letter) for letter in page]
    return found


async def _filled(redis: Redis, settings: Settings, chosen: Chosen) -> list[Letter]:
    """The same, with the alerts that are in objects."""
    found = await _found(redis, settings, chosen, whole=True)
    objects = Objects(settings.objects.url, settings.redis.namespace)
    return [letter async for letter in filled(found, objects)]


async def _exported(redis: Redis, settings: Settings, chosen: Chosen, to: BinaryIO) -> int:
    """How many were written."""
    names = await reach.choose(redis, settings, chosen.destinations)
    wanted = chosen.wanted(await reach.now(redis))
    objects = Objects(settings.objects.url, settings.redis.namespace)
    namespace, written = settings.redis.namespace, 0
    quiet = to is sys.stdout.buffer and sys.stdout.isatty()  # it would be between the lines
    with looking(await letters.length(redis, namespace, list(names)), quiet) as told:
        async for page in letters.pages(redis, namespace, list(names), wanted, told):
            async for letter in filled(page, objects):
                to.write(msgspec.json.encode(letters.whole(letter)) + b"\n")
            written += len(page)
    return written

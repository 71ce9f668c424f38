"""`redispatch ledger`: the counters that must balance, and booking a difference that is understood."""

from __future__ import annotations

import os

import click
from redis.asyncio import Redis
from rich.console import Console

from common import keys, log
from common.scripts import Script
from common.settings import Settings
from common.snapshot import Snapshot, snapshot
from ops import ask, options, reach, tables

_accept = Script("ops", "accept")


@click.group(invoke_without_command=True)
@options.config_option
@options.json_option
@click.pass_context
def ledger(ctx: click.Context, config: str | None, as_json: bool) -> None:
    """Show the ledger, or book what is understood.

    What came in must equal what ended and what waits, for each destination and at any instant; `unaccounted`
    is by how much it does not. Exit code 0 when all balance; 1 when one does not, or Redis can't be used.
    """
    if ctx.invoked_subcommand is not None:
        return
    settings = options.settings(config)
    seen = reach.run(settings, lambda redis: _look(redis, settings))
    if as_json:
        options.print_json({"ledger": [tables.ledger_json(one) for one in seen]})
    else:
        Console(highlight=False).print(tables.ledger(seen))
        for one in seen:
            if one.unaccounted:
                click.echo("\n".join(tables.equations(one)))
    ctx.exit(1 if any(one.unaccounted for one in seen) else 0)


@ledger.command()
@options.config_option
@options.destination_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.json_option
@click.pass_context
def accept(ctx: click.Context, config: str | None, destination: str, yes: bool, as_json: bool) -> None:
    """Book what is missing as lost.

    Missing dead letters are booked as discarded. Do it when the reason is understood: the alarm is over then.
    A log line on stderr says what was booked. Exit code 0 when the ledger balances afterwards; 1 otherwise.
    """
    settings = options.settings(options.config_of(ctx))
    try:
        log.setup("ops", everything=True)
    except ValueError as fault:
        raise click.ClickException(str(fault)) from fault
    one = reach.run(settings, lambda redis: _one(redis, settings, destination))
    lost, discarded = one.ledger.missing(one.depth), one.ledger.missing_dead(one.dead_letters)
    if one.unaccounted:
        _book_it(settings, one, yes)
    if as_json:
        options.print_json({"destination": destination, "lost": lost, "discarded": discarded})
    elif one.unaccounted:
        click.echo(f"booked for {destination}: {lost} as lost, {discarded} as discarded")
    else:
        click.echo(f"the ledger of {destination} balances: nothing to book")


def _book_it(settings: Settings, one: Snapshot, yes: bool) -> None:
    """Ask, book, and write the audit line."""
    destination = one.destination
    lost, discarded = one.ledger.missing(one.depth), one.ledger.missing_dead(one.dead_letters)
    click.echo("\n".join(tables.equations(one)), err=True)
    ask.sure(f"Book {lost} as lost, {discarded} as discarded for {destination}?", yes)
    if not reach.run(settings, lambda redis: _book(redis, settings, destination, lost, discarded)):
        raise click.ClickException("the difference has changed meanwhile, nothing was booked: look again")
    who = os.environ.get("USER") or str(os.getuid())
    log.Log("ops").warning(
        "ledger_accepted", destination=destination, lost=lost, discarded=discarded, user=who
    )


async def _look(redis: Redis, settings: Settings) -> list[Snapshot]:
    namespace = settings.redis.namespace
    return [await snapshot(redis, namespace, name) for name in await reach.names(redis, settings)]


async def _one(redis: Redis, settings: Settings, name: str) -> Snapshot:
    await reach.choose(redis, settings, [name])
    return await snapshot(redis, settings.redis.namespace, name)


async def _book(redis: Redis, settings: Settings, name: str, lost: int, discarded: int) -> bool:
    """False when the difference is another by now."""
    at = keys.Destination(settings.redis.namespace, name)
    told = await _accept(redis, [at.stream, at.retry, at.dead, at.ledger], [lost, discarded])
    return bool(told[2])

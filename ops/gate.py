"""`redispatch pause` and `redispatch resume`: close and open a destination's gate for the whole fleet."""

from __future__ import annotations

import click
from redis.asyncio import Redis

from common import keys
from common.scripts import Script
from common.settings import Settings
from ops import options, reach
from ops.text import count, moment, plain

_pause = Script("ops", "pause")
_resume = Script("ops", "resume")


@click.command()
@options.config_option
@click.argument("destination", metavar="DEST")
@click.option("--reason", default="", metavar="TEXT", help="Why, for those who look at the status.")
def pause(config: str | None, destination: str, reason: str) -> None:
    """Send nothing more to a destination.

    For the whole fleet, until `redispatch resume`. What was sent already is finished; what arrives waits.
    Exit code 0 also when it was paused already; 1 when there is no such destination or no Redis.
    """
    settings = options.settings(config)
    before, depth, since = reach.run(settings, lambda redis: _closed(redis, settings, destination, reason))
    waiting = count(depth, "delivery waits", "deliveries wait")
    if before == "paused":
        click.echo(f"{destination} was paused already, since {moment(since)}: {waiting}")
    else:
        instead = f" (its gate was closed before: {plain(before)})" if before else ""
        click.echo(f"{destination} is paused{instead}: {waiting}")
    click.echo("max_age still counts: what gets too old while it waits becomes a dead letter")


@click.command()
@options.config_option
@click.argument("destination", metavar="DEST")
def resume(config: str | None, destination: str) -> None:
    """Send to a destination again, whatever closed its gate.

    Exit code 0 also when it was open; 1 when there is no such destination or no Redis.
    """
    settings = options.settings(config)
    before, depth = reach.run(settings, lambda redis: _opened(redis, settings, destination))
    waiting = count(depth, "delivery waits", "deliveries wait")
    if before:
        click.echo(f"{destination} is open again (it was {plain(before)}): {waiting}")
    else:
        click.echo(f"{destination} was open: {waiting}")


async def _closed(redis: Redis, settings: Settings, name: str, reason: str) -> tuple[str, int, int]:
    """The gate's state before, depth, and since when it is paused, ms."""
    await reach.choose(redis, settings, [name])
    at = keys.Destination(settings.redis.namespace, name)
    before, depth, since = await _pause(redis, [at.gate, at.stream, at.retry], [reason])
    return before.decode("utf-8", "replace"), depth, since


async def _opened(redis: Redis, settings: Settings, name: str) -> tuple[str, int]:
    """The gate's state before, and depth."""
    await reach.choose(redis, settings, [name])
    at = keys.Destination(settings.redis.namespace, name)
    before, depth = await _resume(redis, [at.gate, at.stream, at.retry], [])
    return before.decode("utf-8", "replace"), depth

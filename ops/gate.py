"""`redispatch pause` and `redispatch resume`: close and open a destination's gate for the whole fleet."""

from __future__ import annotations

import click
from redis.asyncio import Redis

from common import keys
from common.scripts import Script
from common.settings import Settings
from ops import options, reach
from ops.text import count, decoded, moment, plain

_pause = Script("ops", "pause")
_resume = Script("ops", "resume")


@click.command()
@options.config_option
@options.destination_argument
@click.option("--reason", default="", metavar="TEXT", help="Why, for those who look at the status.")
@options.json_option
def pause(config: str | None, destination: str, reason: str, as_json: bool) -> None:
    """Send nothing more to a destination.

    For the whole fleet, until `redispatch resume`. What was sent already is finished; what arrives waits.
    Exit code 0 also when it was paused already, or gone; 1 when there is no such destination or no Redis.
    """
    settings = options.settings(config)
    before, why, depth, since = reach.run(settings, lambda redis: close(redis, settings, destination, reason))
    if as_json:
        state = "gone" if before == "gone" else "paused"
        options.print_json(_document(destination, state, depth, before, why))
        return
    waiting = count(depth, "delivery waits", "deliveries wait")
    told = f"{before}, since {moment(since)}{_in_brackets(why)}"
    if before == "gone":
        click.echo(f"{destination} stays {told}: nothing is sent until resume, {waiting}")
    elif before == "paused":
        click.echo(f"{destination} was {told} already: {waiting}")
    else:
        instead = f" (its gate was closed before: {plain(before)}{_in_brackets(why)})" if before else ""
        click.echo(f"{destination} is paused{instead}: {waiting}")
    click.echo("max_age still counts: what gets too old while it waits becomes a dead letter")


@click.command()
@options.config_option
@options.destination_argument
@options.json_option
def resume(config: str | None, destination: str, as_json: bool) -> None:
    """Send to a destination again, whatever closed its gate.

    Exit code 0 also when it was open; 1 when there is no such destination or no Redis.
    """
    settings = options.settings(config)
    before, why, since, depth = reach.run(settings, lambda redis: open_again(redis, settings, destination))
    if as_json:
        options.print_json(_document(destination, "open", depth, before, why))
        return
    waiting = count(depth, "delivery waits", "deliveries wait")
    if before:
        told = f"{plain(before)} since {moment(since)}{_in_brackets(why)}"
        click.echo(f"{destination} is open again (it was {told}): {waiting}")
    else:
        click.echo(f"{destination} was open: {waiting}")


def _document(name: str, state: str, depth: int, before: str, why: str) -> dict[str, object]:
    gate = {"state": before or "open", "reason": why or None}
    return {"destination": name, "state": state, "depth": depth, "before": gate}


def _in_brackets(why: str) -> str:
    return f" ({plain(why)})" if why else ""


async def close(redis: Redis, settings: Settings, name: str, reason: str) -> tuple[str, str, int, int]:
    """The gate's state before and its reason, depth, and since when it is closed, ms."""
    await reach.choose(redis, settings, [name])
    at = keys.Destination(settings.redis.namespace, name)
    before, why, depth, since, _ = await _pause(redis, [at.gate, at.stream, at.retry], [reason])
    return decoded(before), decoded(why), depth, since


async def open_again(redis: Redis, settings: Settings, name: str) -> tuple[str, str, int, int]:
    """The gate's state before, its reason and since when, ms; and depth."""
    await reach.choose(redis, settings, [name])
    at = keys.Destination(settings.redis.namespace, name)
    before, why, since, depth, _ = await _resume(redis, [at.gate, at.stream, at.retry], [])
    return decoded(before), decoded(why), since, depth

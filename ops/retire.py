"""`redispatch retire`: moves what a removed destination still has to its dead letters, batch by batch.

Every batch is one script call, so that the ledger stays exact and what was interrupted can be run again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import click
import msgspec
from msgspec import Struct, structs
from redis.asyncio import Redis

from common import keys
from common.scripts import Script
from common.settings import Settings
from common.snapshot import snapshot
from ops import ask, options, reach
from ops.progress import progress
from ops.text import count, decoded

BATCH = 100  # deliveries in one script call; the server does nothing else meanwhile

_retire = Script("ops", "retire")
_resume = Script("ops", "resume")


class Retired(Struct):
    """What came of it: `left` are in work at replicas that still know the destination."""

    moved: int = 0
    left: int = 0
    full: bool = False
    interrupted: bool = False


@click.command()
@options.config_option
@click.argument("destination", metavar="DEST")  # one that is not in the file to complete from
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.json_option
def retire(config: str | None, destination: str, yes: bool, as_json: bool) -> None:
    """Move what a removed destination still has to its dead letters.

    For a destination that is no longer in the configuration. What replicas with an older one are just sending
    is left alone. Exit code 0; 1 when something was left, the dead letters are at their cap, the destination
    is still configured or unknown, or Redis can't be used; 130 when interrupted.
    """
    settings = options.settings(config)
    depth = reach.run(settings, lambda redis: _depth(redis, settings, destination))
    if depth:
        ask.sure(f"Move {_deliveries(depth)} of {destination} to its dead letters?", yes=yes)
    done = reach.run(settings, lambda redis: _moved(redis, settings, destination, depth))
    if as_json:
        options.print_json({"destination": destination, **structs.asdict(done)})
    else:
        _report(settings, destination, depth, done)
    if done.interrupted:
        sys.exit(options.INTERRUPTED)
    sys.exit(1 if done.left or done.full else 0)


def _report(settings: Settings, destination: str, depth: int, done: Retired) -> None:
    click.echo(f"{destination}: {_deliveries(done.moved)} moved to its dead letters")
    if done.left:
        told = count(done.left, "is in work at a replica", "are in work at replicas")
        click.echo(f"{told} that still knows it; run it again when they have ended", err=True)
    if done.full:
        cap = settings.queue.max_dead
        click.echo(f"stopped, its dead letters are at their cap ({cap}): discard some first", err=True)
    if done.interrupted:
        click.echo(f"interrupted after {done.moved} of {depth}; run it again for the rest", err=True)


async def _depth(redis: Redis, settings: Settings, name: str) -> int:
    """How much there is. A destination that is configured is the command's error."""
    known = await reach.choose(redis, settings, [name])
    if not known[name]:
        raise click.ClickException(f"{name} is in the configuration: take it out of the file first")
    return (await snapshot(redis, settings.redis.namespace, name)).depth


async def _moved(redis: Redis, settings: Settings, name: str, depth: int) -> Retired:
    done, stop = Retired(), asyncio.Event()
    with progress("retire", depth, stop) as told:
        await move_all(redis, settings, name, done, told, stop)
    return done


async def move_all(
    redis: Redis,
    settings: Settings,
    name: str,
    done: Retired,
    told: Callable[[int], None],
    stop: asyncio.Event,
) -> None:
    """Rounds, until one finds nothing more to move: older replicas may put retries back meanwhile.

    `done` is kept up to date, `told` hears of each batch's size, `stop` ends it between two batches.
    """
    mover = _Mover(redis, settings, name, done, told)
    while not (stop.is_set() or done.full):
        before, done.left = done.moved, 0
        async for page in mover.pages():
            await mover.move(page)
            if stop.is_set() or done.full:
                break
        if done.moved == before:
            if not done.left:
                await mover.open_gate()
            return
    done.interrupted = stop.is_set()


class _Mover:
    """One destination's entries and retries, page by page."""

    def __init__(
        self, redis: Redis, settings: Settings, name: str, done: Retired, told: Callable[[int], None]
    ) -> None:
        self._redis: Any = redis  # whose annotations would have every answer be anything
        self._at = keys.Destination(settings.redis.namespace, name)
        self._limits = [settings.dispatcher.visibility_timeout.ms, settings.queue.max_dead]
        self._done = done
        self._told = told

    async def pages(self) -> AsyncIterator[list[tuple[bytes, str]]]:
        """What is to be moved, each with its key: entries, then members of `retry`."""
        start = "-"
        while entries := await self._redis.xrange(self._at.stream, start, "+", BATCH):
            yield [(entry_id, decoded(fields.get(b"key", b""))) for entry_id, fields in entries]
            start = f"({entries[-1][0].decode()}"
        before = -1
        while before != self._done.moved:
            before = self._done.moved
            members = await self._redis.zrange(self._at.retry, 0, BATCH - 1)
            if members:
                yield [(member, key_of(member)) for member in members]

    async def open_gate(self) -> None:
        """What closed it is over: the destination may come back one day."""
        await _resume(self._redis, [self._at.gate, self._at.stream, self._at.retry], [])

    async def move(self, page: Sequence[tuple[bytes, str]]) -> None:
        """One script call."""
        at = self._at
        touched = [at.stream, at.retry, at.dead, at.ledger, *(at.record(key) for _, key in page)]
        chosen = [each for each, _ in page]
        moved, left, full, _ = await _retire(
            self._redis, touched, [keys.GROUP, *self._limits, len(chosen), *chosen]
        )
        self._done.moved += moved
        self._done.left += left
        self._done.full = bool(full)
        self._told(moved)


def key_of(member: bytes) -> str:
    """The key in a member of `retry`; "" when there is none that can be read."""
    try:
        fields = msgspec.msgpack.decode(member.partition(b" ")[2], type=list[str])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    return dict(zip(fields[::2], fields[1::2], strict=False)).get("key", "")


def _deliveries(number: int) -> str:
    return count(number, "delivery", "deliveries")

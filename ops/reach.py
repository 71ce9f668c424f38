"""One command's work on Redis: connect, look at the server, do the work, say in one line what went wrong.

Takes the settings and a coroutine function that is given the client; returns what that returns. Also says
which destinations there are, those that left the configuration included, and takes the snapshots of many.
Raises click's exceptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import click
from msgspec import structs
from redis.asyncio import Redis
from redis.exceptions import RedisError

from common import connect
from common.cluster import Cluster
from common.settings import Settings
from common.snapshot import Snapshot, destinations, snapshot
from common.units import Duration

T = TypeVar("T")

PATIENCE = Duration(5)  # a person waits longer than a sender does
CONNECTIONS = 4


def run(settings: Settings, work: Callable[[Redis], Awaitable[T]], *, partly: bool = False) -> T:
    """Do the work. A server that is away or can't be used is the command's error, exit code 1.

    `partly`: the work is begun although a server of a Cluster is away.
    """
    return asyncio.run(_run(settings, work, partly))


async def _run(settings: Settings, work: Callable[[Redis], Awaitable[T]], partly: bool) -> T:
    section = structs.replace(settings.redis, timeout=max(settings.redis.timeout, PATIENCE))
    redis = connect.client(section, connections=CONNECTIONS)
    try:
        try:
            await connect.inspect(redis, section)
        except RedisError:
            if not (partly and isinstance(redis, Cluster)):
                raise
        return await work(redis)
    except connect.Unusable as fault:
        raise click.ClickException(str(fault)) from fault
    except RedisError as fault:
        raise click.ClickException(connect.describe(fault, section.url)) from fault
    finally:
        await redis.aclose()


def maxmemory(settings: Settings) -> int | None:
    """What the server may take, bytes, 0 for no limit; None when it can't be asked now."""
    return asyncio.run(_maxmemory(settings))


async def _maxmemory(settings: Settings) -> int | None:
    redis = connect.client(settings.redis, connections=1)
    try:
        return (await connect.inspect(redis, settings.redis)).maxmemory
    except (connect.Unusable, RedisError):
        return None  # the services will say what is wrong with it
    finally:
        await redis.aclose()


async def now(redis: Redis) -> int:
    """The server's time, ms: the ids of dead letters are such times."""
    seconds, micros = await redis.execute_command("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


async def names(redis: Redis, settings: Settings) -> dict[str, bool]:
    """Every destination, those of the file first, in its order; True for one that left it."""
    there = {destination.name: False for destination in settings.destinations}
    left = [name for name in await destinations(redis, settings.redis.namespace) if name not in there]
    return there | dict.fromkeys(left, True)


async def listed(
    redis: Redis, settings: Settings, before: Mapping[str, bool]
) -> tuple[dict[str, bool], RedisError | None]:
    """`names`; in a Cluster whose server with the list is away those of the file and of `before`, and why.

    Raises it when these are none.
    """
    try:
        return await names(redis, settings), None
    except RedisError as fault:
        there = {destination.name: False for destination in settings.destinations}
        known = there | {name: True for name in before if name not in there}
        if not known or not isinstance(redis, Cluster):
            raise
        return known, fault


async def snapshots(
    redis: Redis, namespace: str, names: Sequence[str], at_once: int = CONNECTIONS
) -> dict[str, Snapshot | RedisError]:
    """Of each destination, or why it was not seen: in a Cluster it is not the same for all.

    Raises it when none was seen, and when there is one server.
    """
    found: dict[str, Snapshot | RedisError] = {}
    for start in range(0, len(names), at_once):
        some = names[start : start + at_once]
        looks = await asyncio.gather(*(_snapshot(redis, namespace, name) for name in some))
        found |= dict(zip(some, looks, strict=True))
    faults = [one for one in found.values() if isinstance(one, RedisError)]
    if faults and len(faults) == len(found):
        raise faults[0]
    return found


async def _snapshot(redis: Redis, namespace: str, name: str) -> Snapshot | RedisError:
    try:
        return await snapshot(redis, namespace, name)
    except RedisError as fault:
        if not isinstance(redis, Cluster):
            raise
        return fault


async def choose(redis: Redis, settings: Settings, wanted: Sequence[str]) -> dict[str, bool]:
    """Those that were asked for, all when none was. A name that is none of them is the command's error."""
    known = await names(redis, settings)
    for name in wanted:
        if name not in known:
            listed = ", ".join(f"{each} (removed)" if left else each for each, left in known.items())
            raise click.ClickException(f"no destination {name!r}; there are: {listed or 'none'}")
    return {name: known[name] for name in dict.fromkeys(wanted)} if wanted else known

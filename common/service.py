"""What both services do at their start and end: load, watch, listen for signals, wait for Redis, complain.

Takes a service's name and its coroutine; returns exit codes. A person's mistake is one line on stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import uvloop
from redis.asyncio import Redis
from redis.exceptions import RedisError

from common import connect, log
from common.config import ConfigError, load_with_places
from common.http import CannotListen
from common.kinds import Kinds
from common.reload import Watch
from common.settings import Settings

PATIENCE = 10.0  # seconds for Redis to come up beside us
PAUSE = 0.2  # seconds between two looks

Serve = Callable[[Settings, asyncio.Event, Watch], Awaitable[None]]


class Unstartable(Exception):
    """The service can't do its work; the text says why and what to do."""


def main(name: str, config_path: str | None, serve: Serve, kinds: Kinds | None = None) -> int:
    """Load the configuration, serve until SIGTERM or SIGINT, and return the exit code."""
    read = partial(load_with_places, config_path, kinds=kinds)
    try:
        loaded = read()
    except ConfigError as fault:
        return complain(name, f"the configuration can't be used\n{fault}")
    log.setup(name)
    try:
        hurry = asyncio.Event()
        watch = Watch(name, loaded, read, kinds, hurry)
        uvloop.run(_until_told(loaded.settings, serve, watch, hurry))
    except (Unstartable, CannotListen) as fault:
        return complain(name, str(fault))
    return 0


def told_config(name: str, words: Sequence[str] | None = None) -> str | None:
    """`--config` of `python -m <name>`; anything else on the command line ends the process with its usage."""
    usage = argparse.ArgumentParser(prog=f"python -m {name}", allow_abbrev=False)
    usage.add_argument(
        "--config", metavar="FILE", help="the configuration; REDISPATCH_CONFIG, or else ./redispatch.yaml"
    )
    told: str | None = usage.parse_args(words).config
    return told


async def _until_told(settings: Settings, serve: Serve, watch: Watch, hurry: asyncio.Event) -> None:
    stop = asyncio.Event()
    told = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: hurry}
    for number, event in told.items():
        asyncio.get_running_loop().add_signal_handler(number, event.set)
    await serve(settings, stop, watch)


async def reach(
    redis: Redis, settings: Settings, stop: asyncio.Event, *, durability: str = "written"
) -> connect.Server | None:
    """What Redis is, once it answers; None when told to stop first. Raises Unstartable."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not stop.is_set():
        try:
            return await connect.inspect(redis, settings.redis, durability)
        except connect.Unusable as fault:
            raise Unstartable(str(fault)) from fault
        except RedisError as fault:
            if asyncio.get_running_loop().time() > deadline:
                raise Unstartable(connect.describe(fault, settings.redis.url)) from fault
        await either(stop, PAUSE)
    return None


def calm_collector() -> None:
    """Leave what the start made out of garbage collection, and collect less often what requests make.

    A full collection of the 50,000 objects that a start makes takes tens of milliseconds, several times a
    second under load: the slowest hundredth of answers was made of them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


async def either(stop: asyncio.Event, seconds: float) -> None:
    """Sleep, but not beyond the order to stop."""
    if stop.is_set():
        return
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return


def complain(name: str, text: str) -> int:
    """One line for a person; the exit code that goes with it."""
    sys.stderr.write(f"redispatch {name}: {text}\n")
    return 1

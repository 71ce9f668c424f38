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
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import uvloop
from msgspec import structs
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, RedisError

from common import connect, log, redis_url, rights
from common.config import ConfigError, Loaded, load_with_places
from common.kinds import Kinds
from common.listen import CannotListen
from common.reload import RESTART, Watch, keep
from common.settings import Settings

PATIENCE = 10.0  # seconds for Redis to come up beside us
PAUSE = 0.2  # seconds between two looks

Serve = Callable[[Settings, asyncio.Event, Watch], Awaitable[None]]


class Unstartable(Exception):
    """The service can't do its work; the text says why and what to do."""


@dataclass(frozen=True)
class Start:
    """What a process begins with: its configuration, and how that is read again."""

    name: str
    loaded: Loaded
    read: Callable[[], Loaded]

    @property
    def settings(self) -> Settings:
        """Those of now."""
        return self.loaded.settings

    def later(self) -> Start:
        """The same with the file as it is by now, if it can be used; what needs a restart stays as it is."""
        try:
            fresh = self.read()
        except ConfigError:
            return self  # and the watch will tell why
        settings, _ = keep(self.settings, fresh.settings, RESTART[self.name])
        return replace(self, loaded=structs.replace(fresh, settings=settings))

    def live(self, serve: Serve) -> int:
        """Serve until SIGTERM or SIGINT, and return the exit code."""
        try:
            hurry = asyncio.Event()
            watch = Watch(self.name, self.loaded, self.read, hurry)
            uvloop.run(_until_told(self.settings, serve, watch, hurry))
        except (Unstartable, CannotListen) as fault:
            return complain(self.name, str(fault))
        return 0


def begin(name: str, config_path: str | None, kinds: Kinds | None = None) -> Start | None:
    """Load the configuration, begin to log; None when that can't be done, and somebody was told."""
    read = partial(load_with_places, config_path, kinds=kinds)
    try:
        loaded = read()
    except ConfigError as fault:
        complain(name, f"the configuration can't be used\n{fault}")
        return None
    try:
        log.setup(name)
    except ValueError as fault:
        complain(name, str(fault))
        return None
    return Start(name, loaded, read)


def main(name: str, config_path: str | None, serve: Serve, kinds: Kinds | None = None) -> int:
    """Load the configuration, serve until SIGTERM or SIGINT, and return the exit code."""
    start = begin(name, config_path, kinds)
    return 1 if start is None else start.live(serve)


def told_config(name: str, words: Sequence[str] | None = None) -> str | None:
    """`--config` of `python -m <name>`; anything else on the command line ends the process with its usage."""
    usage = argparse.ArgumentParser(prog=f"python -m {name}", allow_abbrev=False)
    usage.add_argument(
        "--config", metavar="FILE", help="the configuration; REDISPATCH_CONFIG, or else ./redispatch.yaml"
    )
    told: str | None = usage.parse_args(words).config
    return told


def _told_by_loop(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """uvloop takes what still comes over TLS, after we hung up, for an error that nobody was told of."""
    fault = context.get("exception")
    if str(context.get("message")).startswith("Fatal error on SSL protocol") and isinstance(
        fault, OSError | RuntimeError
    ):
        log.Log("service").info("tls_after_end", error=fault)
    else:
        loop.default_exception_handler(context)


async def _until_told(settings: Settings, serve: Serve, watch: Watch, hurry: asyncio.Event) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.set_exception_handler(_told_by_loop)
    told = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: hurry}
    for number, event in told.items():
        loop.add_signal_handler(number, event.set)
    await serve(settings, stop, watch)


async def reach(
    redis: Redis, settings: Settings, stop: asyncio.Event, role: str, *, durability: str = "written"
) -> connect.Server | None:
    """What Redis is, once it answers; None when told to stop first. Raises Unstartable.

    `role` says what its user has to be allowed there (`rights`).
    """
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not stop.is_set():
        try:
            server = await connect.inspect(redis, settings.redis, durability)
            await allowed(redis, settings, role, durability)
            return server
        except (connect.Unusable, NoPermissionError) as fault:
            raise Unstartable(str(fault)) from fault
        except RedisError as fault:
            if asyncio.get_running_loop().time() > deadline:
                raise Unstartable(connect.describe(fault, settings.redis.url)) from fault
        await either(stop, PAUSE)
    return None


async def allowed(redis: Redis, settings: Settings, role: str, durability: str) -> None:
    """Raises Unstartable, which names what the user of the server lacks, and NoPermissionError."""
    section = settings.redis
    kind = redis_url.parse(section.url).kind
    lacking = await rights.missing(redis, rights.ROLES[role], section.namespace, durability, kind)
    if lacking:
        raise Unstartable(
            f"the user of {connect.masked(section.url)} lacks {', '.join(lacking)}: "
            f"docs/acl.md shows what {role} needs"
        )


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

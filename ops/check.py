"""`redispatch check`: is the configuration right, and is it wise?

Takes the file's path; prints every fault, or every warning and a one-line summary; returns the exit code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from pathlib import Path as FilePath
from typing import TextIO, TypeAlias

import msgspec
from msgspec import Struct, structs

from common.config import ConfigError, load_with_places
from common.faults import Fault, Path
from common.policy import retry_policy
from common.settings import Console, Destination, Match, Route, Settings
from common.stored import scheme
from common.units import EVERYWHERE, Address, Duration, Rate
from dispatcher.destinations import kinds
from ingest import senders
from ingest.tls import TlsFault, context
from ops import scale
from ops.console import listen
from ops.scale import Need, readable
from ops.text import count

Warned: TypeAlias = Iterator[tuple[Path, str]]

_ALERT = 1024  # bytes of one as it is stored: what it is assumed to be


class Findings(Struct, frozen=True, kw_only=True):
    """What is wrong, what is doubtful, and two lines for people; with faults nothing would start."""

    faults: list[Fault] = []
    warnings: list[Fault] = []
    memory: str = ""
    need: Need | None = None
    scale: list[str] = []
    summary: str


def check(
    path: str | None,
    out: TextIO,
    maxmemory: Callable[[Settings], int | None] = lambda settings: None,
    as_json: bool = False,
    rate: Rate | None = None,
) -> int:
    """Print what is wrong (exit code 1) or doubtful (exit code 0) with the configuration at `path`.

    `maxmemory` asks the server, when there is one that answers. `rate`: also what so many alerts need.
    """
    found = examine(path, maxmemory, rate=rate)
    if as_json:
        document = {"valid": not found.faults, **structs.asdict(found)}
        del document["scale"]  # `need` in words
        if found.need is None:
            del document["need"]
        out.write(msgspec.json.format(msgspec.json.encode(document)).decode() + "\n")
    else:
        out.write("".join(f"fault: {fault}\n" for fault in found.faults))
        out.write("".join(f"warning: {warning}\n" for warning in found.warnings))
        out.write("\n".join([*filter(None, [found.memory]), *found.scale, found.summary, ""]))
    return 1 if found.faults else 0


def examine(
    path: str | None,
    maxmemory: Callable[[Settings], int | None] = lambda settings: None,
    environ: Mapping[str, str] | None = None,
    rate: Rate | None = None,
    ingest: bool = True,
) -> Findings:
    """The same as a value; `environ`: in another environment than this one; `ingest`: it is to start there.

    Routes that leave some alerts without a destination are wrong here, although the services start: ingest
    refuses such alerts with 400, so that none goes nowhere in silence.
    """
    try:
        loaded = load_with_places(path, environ, kinds)
    except ConfigError as error:
        many = count(len(error.faults), "fault")
        return Findings(faults=error.faults, summary=f"{many}, nothing would start")
    settings, place = loaded.settings, loaded.report.place
    wrong = [Fault(place(where), message) for where, message in _ingest(settings)] if ingest else []
    if wrong:
        return Findings(faults=wrong, summary=f"{count(len(wrong), 'fault')}, ingest would not start")
    if settings.routes and not any(route.match == Match() for route in settings.routes):
        message = "an alert that fits none of them is refused; end with {to: [...]}"
        return Findings(
            faults=[Fault(place(("routes",)), message)], summary="1 fault, alerts would be refused"
        )
    found = [*warnings(settings), *_console(settings, place(("console", "listen")))]
    doubts = [Fault(place(where), message) for where, message in found]
    needed = None if rate is None else scale.need(settings, rate)
    return Findings(
        warnings=doubts,
        memory=memory(settings, maxmemory(settings)),
        need=needed,
        scale=[] if needed is None else list(scale.told(settings, needed)),
        summary=_summary(loaded.report.file, settings, len(doubts)),
    )


def warnings(settings: Settings) -> Warned:
    """What may be meant and often is not: where, and why it is doubtful."""
    yield from _listening(settings)
    yield from _objects(settings)
    yield from _routing(settings)
    for index, destination in enumerate(settings.destinations):
        path: Path = ("destinations", index)
        yield from _timeouts(settings, destination, path)
        yield from (((*path, *below), message) for below, message in kinds.warnings(destination))
        yield from _schedule(destination, path)


def _ingest(settings: Settings) -> Warned:
    """Why ingest would not start, and only ingest."""
    why = senders.too_open(settings)
    if why is not None:
        yield ("ingest", "listen"), why
    try:
        context(settings.ingest.tls)
    except TlsFault as fault:
        yield ("ingest", "tls", fault.setting), fault.why


def memory(settings: Settings, maxmemory: int | None) -> str:
    """What remembering and full queues take, beside what the server may take (0: no limit, None: not asked).

    Per alert a second, since how many come is not in the file.
    """
    per_second = scale.remembered(settings)
    full = settings.queue.max_depth * (_ALERT + scale.WAITING) * len(settings.destinations)
    told = (
        f"memory: one alert per second to every destination takes about {readable(per_second)} to remember; "
        f"full queues of alerts of 1KiB take {readable(full)} more"
    )
    if not maxmemory:
        return told if maxmemory is None else f"{told}; the server has no maxmemory"
    short = ": too little, ingest will refuse alerts before a queue is full" if full > maxmemory else ""
    return f"{told}; maxmemory is {readable(maxmemory)}{short}"


def _listening(settings: Settings) -> Warned:
    listens = {name: getattr(settings, name).listen for name in ("ingest", "dispatcher", "console")}
    for (other, there), (name, here) in combinations(listens.items(), 2):
        if _same(Address.parse(there), Address.parse(here)):
            yield (name, "listen"), f"{other} listens on {there}, too: not both on one machine"


def _same(one: Address, other: Address) -> bool:
    """Whether a second process would find it taken."""
    hosts = {one.host, other.host}
    return one.port == other.port != 0 and (len(hosts) == 1 or bool(hosts & EVERYWHERE.keys()))


def _console(settings: Settings, place: str) -> Warned:
    """Whether the console would start. Many run none, so nothing is said of one of which only a variable of
    the environment says where it listens, as the image does for every process."""
    console = settings.console
    fault = listen.too_open(console)
    bare = structs.replace(console, listen=Console().listen) == Console()
    if fault is not None and not (bare and place.startswith("REDISPATCH_CONSOLE_")):
        yield ("console", fault[0]), f"the console would not start: {fault[1]}"


def _objects(settings: Settings) -> Warned:
    url, path = settings.objects.url, ("objects", "url")
    if scheme(url) == "memory":
        yield path, "is lost with its process, and no other process can see it"
    elif scheme(url) is None and not _writable(FilePath(url)):
        yield (
            path,
            f"{url} can't be written by whoever runs this: ingest would answer 503 to alerts above "
            f"ingest.inline_limit ({settings.ingest.inline_limit})",
        )


def _writable(directory: FilePath) -> bool:
    """Whether it is there, or can be made, and files can be made in it."""
    there = next(each for each in (directory, *directory.parents) if os.access(each, os.F_OK))
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _routing(settings: Settings) -> Warned:
    routes = settings.routes
    if not routes:
        return  # every alert goes everywhere
    final = next((index for index, route in enumerate(routes) if _ends(route)), len(routes))
    for index in range(final + 1, len(routes)):
        yield ("routes", index), f"is never reached: routes[{final}] takes everything and does not continue"
    led_to = {name for route in routes[: final + 1] for name in route.to}
    led_to |= {name for destination in settings.destinations for name in destination.follow_ups}
    for index, destination in enumerate(settings.destinations):
        if destination.name not in led_to:
            yield ("destinations", index), f"no route leads to {destination.name}"


def _ends(route: Route) -> bool:
    return route.match == Match() and not route.continue_


def _timeouts(settings: Settings, destination: Destination, path: Path) -> Warned:
    dispatcher, timeout = settings.dispatcher, destination.timeout
    if dispatcher.drain_timeout < timeout:
        yield (
            (*path, "timeout"),
            f"{timeout} is longer than dispatcher.drain_timeout ({dispatcher.drain_timeout}): "
            "an attempt under way at a restart may be cut off, and made again",
        )
    if dispatcher.visibility_timeout < timeout:
        yield (
            (*path, "timeout"),
            f"{timeout} is longer than dispatcher.visibility_timeout ({dispatcher.visibility_timeout}): "
            "a replica that stands still loses its deliveries before they could have ended",
        )


def _schedule(destination: Destination, path: Path) -> Warned:
    policy = retry_policy(destination)
    times = policy.expected()
    within = sum(at <= policy.max_age for at in times)
    if within < policy.attempts:
        yield (
            (*path, "retry"),
            f"max_age ({policy.max_age}) ends it after about {within} of {policy.attempts} attempts, "
            f"the last of which is due {_about(times[-1])} after the first on average",
        )


def _summary(file: str, settings: Settings, warned: int) -> str:
    parts = (
        count(len(settings.destinations), "destination"),
        count(len(settings.routes), "route"),
        count(len(settings.rules), "rule"),
        count(warned, "warning"),
    )
    return f"{file} is valid: {', '.join(parts)}"


def _about(seconds: float) -> Duration:
    for unit in (3600, 60, 1):
        if seconds >= 2 * unit:
            return Duration(round(seconds / unit) * unit)
    return Duration(round(seconds, 3))

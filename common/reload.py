"""The configuration while a service runs: looked at every two seconds, and at once on SIGHUP.

A changed one is handed over whole, a broken one refused whole: the old one stays, with one log line per set
of faults. What can't change while running keeps its old value, and the log says what waits for a restart.
Files are read and parsed in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

from msgspec import structs

from common.config import ConfigError, Loaded
from common.faults import Report
from common.log import Log
from common.settings import Redis, Settings

EVERY = 2.0  # seconds between two looks
CALM = 0.2  # seconds for which a file has to stay as it is, since whoever writes it may not be through
_BOTH = (
    *(f"redis.{name}" for name in Redis.__struct_fields__),
    *(f"ingest.{name}" for name in ("durability", "replicas", "durability_timeout")),  # of what goes on, too
    "objects.url",
)
RESTART = {
    "ingest": (*_BOTH, "ingest.listen", "ingest.tls", "ingest.workers"),
    "dispatcher": (*_BOTH, "dispatcher.listen", "dispatcher.visibility_timeout"),
    "console": (*_BOTH, "console.listen"),
}  # what a running service can't change

Stamps: TypeAlias = tuple[tuple[int, int, int] | None, ...]  # inode, time in ns, size
Take: TypeAlias = Callable[[Settings], Awaitable[None]]

log = Log("config")


class Refused(Exception):
    """The service can't work with these settings; the text says why."""


class Watch:
    """Looks at the files of what was `loaded` at the start, by `load`; `hurry`: at once."""

    def __init__(
        self,
        service: str,
        loaded: Loaded,
        load: Callable[[], Loaded],
        hurry: asyncio.Event,
    ) -> None:
        self._kept = RESTART[service]
        self._load = load
        self._hurry = hurry
        self._files = _files(loaded.report)
        self._stamps: Stamps | None = None  # unknown: it may have changed since, and the next look reads
        self._digest = b""
        self._missed = False  # the last look did not find all of them
        self._complaint: str | None = None
        self._waiting: list[str] = []

    async def follow(self, settings: Settings, take: Take, failed: Callable[[bool], None]) -> None:
        """Until cancelled, beginning with the settings of the start.

        `take` gets each changed configuration and may raise Refused; `failed` hears of each one that was read
        whether it was refused.
        """
        while True:
            told = await self._rest()
            if not await self._worth_reading(told):
                continue
            try:
                settings = await self._read(settings, take, told)
            except (ConfigError, Refused) as fault:
                self._complain(str(fault))
            except Exception as bug:  # noqa: BLE001 - it is logged, and must not end what works
                self._complain(f"internal: {type(bug).__name__}", bug)
            failed(self._complaint is not None)

    async def _rest(self) -> bool:
        """Whether somebody told us to look."""
        try:
            async with asyncio.timeout(EVERY):
                await self._hurry.wait()
        except TimeoutError:
            return False
        self._hurry.clear()
        return True

    async def _worth_reading(self, told: bool) -> bool:
        """Whether the files are others than before, and complete as far as can be seen."""
        stamps = await asyncio.to_thread(_stamps, self._files)
        missed, self._missed = self._missed, None in stamps
        if told or self._complaint is not None:
            return True
        if stamps == self._stamps or (self._missed and not missed):  # whoever replaces one may be about to
            return False
        digest = await asyncio.to_thread(_digest, self._files)
        if self._stamps is not None and digest == self._digest:
            self._stamps = stamps  # written anew, with the same content
            return False
        await asyncio.sleep(CALM)
        return digest == await asyncio.to_thread(_digest, self._files)

    async def _read(self, settings: Settings, take: Take, told: bool) -> Settings:
        """The settings from now on. Raises ConfigError and Refused."""
        stamps, digest, loaded = await asyncio.to_thread(self._look)
        files = _files(loaded.report)
        fresh, waiting = keep(settings, loaded.settings, self._kept)
        different = changes(settings, fresh)
        if different:
            await take(fresh)
        self._stamps = stamps if files == self._files else None
        self._files, self._digest = files, digest
        if different or told or self._complaint is not None:
            log.info("config_reloaded", changes=", ".join(different) or "nothing")
        self._complaint = None
        if waiting and waiting != self._waiting:
            log.warning("config_waits_for_restart", settings=", ".join(waiting))
        self._waiting = waiting
        return fresh

    def _look(self) -> tuple[Stamps, bytes, Loaded]:
        """The configuration, and how its files were just before: a change in between is seen next time."""
        return _stamps(self._files), _digest(self._files), self._load()

    def _complain(self, text: str, bug: Exception | None = None) -> None:
        if text != self._complaint:
            log.error("config_refused", fault=bug, faults=text.replace("\n", "; "))
        self._complaint = text


def keep(old: Settings, new: Settings, kept: Iterable[str]) -> tuple[Settings, list[str]]:
    """`new` with the `kept` settings, such as `redis.url`, as they were, and those that differ in `new`."""
    waiting: list[str] = []
    for place in kept:
        section, name = place.split(".")
        was = getattr(getattr(old, section), name)
        if was != getattr(getattr(new, section), name):
            waiting.append(place)
            part = structs.replace(getattr(new, section), **{name: was})
            new = structs.replace(new, **{section: part})
    return new, waiting


def changes(old: Settings, new: Settings) -> list[str]:
    """The names of what differs: `ingest.max_body`, `destinations.chat added`, `routes`. No values."""
    found: list[str] = []
    for section in Settings.__struct_fields__:
        was, told = getattr(old, section), getattr(new, section)
        if was == told:
            continue
        if isinstance(was, list):
            found += list(_items(section, was, told)) or [section]
        else:
            fields = (name for name in was.__struct_fields__ if getattr(was, name) != getattr(told, name))
            found += [f"{section}.{name}" for name in fields]
    return found


def _items(section: str, old: Sequence[object], new: Sequence[object]) -> Iterator[str]:
    """Of a list whose items have names; nothing when only their order differs, or they have none."""
    was, told = ({getattr(item, "name", ""): item for item in items} for items in (old, new))
    if "" in was or "" in told:
        return
    for name in dict.fromkeys((*was, *told)):
        if name not in told:
            yield f"{section}.{name} removed"
        elif name not in was:
            yield f"{section}.{name} added"
        elif was[name] != told[name]:
            yield f"{section}.{name}"


def _files(report: Report) -> tuple[Path, ...]:
    """The configuration first, then what its secrets refer to."""
    return Path(report.file), *sorted(report.secret_files)


def _stamps(files: Iterable[Path]) -> Stamps:
    """What tells cheaply that a file is another one; symbolic links are followed."""
    return tuple(_stamp(file) for file in files)


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        told = file.stat()
    except OSError:
        return None
    return told.st_ino, told.st_mtime_ns, told.st_size


def _digest(files: Iterable[Path]) -> bytes:
    """Of the contents; a file that can't be read differs from each that can."""
    whole = blake2b()
    for file in files:
        try:
            content = b"+" + file.read_bytes()
        except OSError:
            content = b"-"
        whole.update(blake2b(content).digest())
    return whole.digest()

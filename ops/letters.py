"""Reading dead letters: page by page from their stream, only those that are asked for.

Takes a Wanted; yields Letters, oldest first, bounded in memory however many there are. What dies while they
are read is not among them, so that a replay that fails does not chase its own tail. Raises what redis-py
raises.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from redis.asyncio import Redis

from common import keys
from ops.text import moment

PAGE = 1000  # letters, once it is known that they are small
PAGE_BYTES = 4 * 1024**2
FIRST_PAGE = 16


class Letter(Struct, frozen=True):
    """One dead letter as it is stored."""

    destination: str
    id: str
    fields: dict[bytes, bytes]
    fault: str = ""  # why its alert could not be got from its object

    def text(self, name: str) -> str:
        """A field for people; empty when it is not there."""
        return self.fields.get(name.encode(), b"").decode("utf-8", "replace")

    @property
    def died_at(self) -> int:
        """ms; the id is the server's time when it died."""
        return int(self.id.partition("-")[0])

    @property
    def size(self) -> int:
        """Bytes of its fields."""
        return sum(map(len, self.fields.values()))


class Wanted(Struct, frozen=True, kw_only=True):
    """Which ones: all that is given must hold. Server times, ms; `limit` counts over all destinations."""

    reasons: frozenset[str] = frozenset()
    key: str | None = None
    since: int | None = None
    until: int | None = None
    ids: tuple[str, ...] = ()
    limit: int | None = None

    @property
    def unfiltered(self) -> bool:
        """Whether every dead letter is wanted."""
        return not (self.reasons or self.key or self.since or self.until or self.ids)

    def admits(self, letter: Letter) -> bool:
        """Whether it is one of them; `key` may hold * and ?."""
        if self.reasons and letter.text("reason") not in self.reasons:
            return False
        if self.key is not None and not fnmatchcase(letter.text("key"), self.key):
            return False
        early = self.since is not None and letter.died_at < self.since
        return not early and (self.until is None or letter.died_at <= self.until)


def without_alert(letter: Letter) -> Letter:
    """The letter with all but what may be large."""
    return replace(letter, fields={name: value for name, value in letter.fields.items() if name != b"alert"})


def _nobody(seen: int) -> None:
    """Nobody wants to know."""


async def pages(
    redis: Redis,
    namespace: str,
    names: Sequence[str],
    wanted: Wanted,
    told: Callable[[int], None] = _nobody,
) -> AsyncIterator[list[Letter]]:
    """Those that are wanted, one destination after the other; a page is of one destination, never empty.

    `told` hears how many were looked at.
    """
    left = wanted.limit
    for name in names:
        found = _picked if wanted.ids else _scanned
        async for letters in found(redis, keys.dead(namespace, name), name, wanted):
            told(len(letters))
            page = [letter for letter in letters if wanted.admits(letter)][:left]
            if page:
                yield page
            if left is not None:
                left -= len(page)
                if not left:
                    return


async def length(redis: Redis, namespace: str, names: Sequence[str]) -> int:
    """How many there are, wanted or not."""
    return sum([await _length(redis, keys.dead(namespace, name)) for name in names])


async def count(
    redis: Redis,
    namespace: str,
    names: Sequence[str],
    wanted: Wanted,
    told: Callable[[int], None] = _nobody,
) -> dict[str, int]:
    """How many are wanted of each destination; without filters nothing is read for it."""
    counts = dict.fromkeys(names, 0)
    if wanted.unfiltered and wanted.limit is None:
        return {name: await _length(redis, keys.dead(namespace, name)) for name in names}
    async for page in pages(redis, namespace, names, wanted, told):
        counts[page[0].destination] += len(page)
    return counts


def summary(letter: Letter) -> dict[str, Any]:
    """A letter without its alert, for JSON; times as RFC 3339."""
    status = letter.text("status")
    return {
        "destination": letter.destination,
        "id": letter.id,
        "key": letter.text("key"),
        "reason": letter.text("reason"),
        "error": letter.text("error"),
        "status": int(status) if status.isdecimal() else None,
        "attempts": _number(letter.text("attempts")),
        "deliveries": _number(letter.text("deliveries")),
        "first_at": _time(letter.text("first_at")),
        "died_at": _time(letter.text("died_at")),
    }


def whole(letter: Letter) -> dict[str, Any]:
    """The same with the alert: as it is when it is JSON, else as text, else as `alert_base64`.

    One whose object can't be read has the reference there, and says why in `object_error`; `trace` is there
    when the alert came with one.
    """
    told = summary(letter) | ({"object_error": letter.fault} if letter.fault else {})
    if context := letter.text("trace"):
        told["trace"] = context
    stored = letter.fields.get(b"alert", b"")
    try:
        msgspec.json.decode(stored)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # opaque: it is shown as the text or the bytes that it is
    else:
        # Line breaks stand between tokens only; without them it fits NDJSON.
        return told | {"alert": msgspec.Raw(stored.replace(b"\n", b" ").replace(b"\r", b" "))}
    try:
        return told | {"alert": stored.decode()}
    except UnicodeDecodeError:
        return told | {"alert_base64": base64.b64encode(stored).decode()}


async def _scanned(redis: Redis, key: str, name: str, wanted: Wanted) -> AsyncIterator[list[Letter]]:
    """The stretch of the stream from `since` to `until`, at most to what is its end now."""
    newest = await redis.execute_command("XREVRANGE", key, "+", "-", "COUNT", 1)
    if not newest:
        return
    end = newest[0][0].decode()
    if wanted.until is not None and wanted.until < int(end.partition("-")[0]):
        end = str(wanted.until)
    start, size = str(wanted.since or "-"), FIRST_PAGE
    while letters := _letters(name, await redis.execute_command("XRANGE", key, start, end, "COUNT", size)):
        yield letters
        start = f"({letters[-1].id}"
        average = sum(letter.size for letter in letters) // len(letters) + 1
        size = max(1, min(PAGE, PAGE_BYTES // average))


async def _picked(redis: Redis, key: str, name: str, wanted: Wanted) -> AsyncIterator[list[Letter]]:
    """Those whose ids were named."""
    for entry_id in wanted.ids:
        found = await redis.execute_command("XRANGE", key, entry_id, entry_id)
        if found:
            yield _letters(name, found)


def _letters(name: str, entries: Any) -> list[Letter]:
    return [Letter(name, entry_id.decode(), fields) for entry_id, fields in entries]


async def _length(redis: Redis, key: str) -> int:
    return int(await redis.execute_command("XLEN", key))


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _time(text: str) -> str | None:
    return moment(int(text)) if text.isdecimal() else None

"""Dead letters as the console looks for them: Wanted with a text, and page by page over all destinations.

Takes fields of a form and the server's clock; returns a Search, then a Found: one page, newest or oldest
first, of what was looked at within a budget of letters, bytes and time, and where to look on. So a view never
takes longer because there are more dead letters. Raises Problem (400) and what redis-py raises.
"""

from __future__ import annotations

import asyncio
import heapq
import re
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias
from urllib.parse import urlencode

import click
from msgspec import Struct, field
from redis.asyncio import Redis

from common import keys
from common.http import Problem
from common.outcomes import Reason
from ops.console.form import Fields, one
from ops.filters import Moment, at
from ops.letters import Letter, Wanted

PAGE = 50  # letters that are shown
LOOKS = 20_000  # letters that one view looks at
BYTES = 16 * 1024**2  # and how many bytes of them
SECONDS = 0.25
FIRST, GROWTH, MOST_AT_ONCE = (
    8,
    6,
    500,
)  # letters in one read: 8, 48 (a page then), 288, 500, if they are small
READ = 1024**2  # bytes in one read, about
_PLACE = re.compile(r"([0-9]{1,20})-([0-9]{1,20})/(.{1,255})", re.DOTALL)

Place: TypeAlias = tuple[int, int, str]  # an id's two numbers and the destination


class Looks:
    """How many letters a search has been shown."""

    def __init__(self) -> None:
        self.count = 0


class Search(Wanted, frozen=True, kw_only=True):
    """As Wanted, and `text` in key, error or alert, capitals or not; `looks` counts what was looked at."""

    destination: str = ""
    text: str = ""
    since_told: str = ""
    until_told: str = ""
    oldest_first: bool = False
    looks: Looks = field(default_factory=Looks)

    def admits(self, letter: Letter) -> bool:
        """Whether it is one of them."""
        self.looks.count += 1
        return super().admits(letter) and (not self.text or _has(letter, self.text))

    @property
    def everything(self) -> bool:
        """Whether every dead letter (of a destination) is wanted."""
        return self.unfiltered and not self.text

    @property
    def fields(self) -> dict[str, str]:
        """As a form has them."""
        told = {
            "destination": self.destination,
            "reason": next(iter(self.reasons), ""),
            "key": self.key or "",
            "text": self.text,
            "since": self.since_told,
            "until": self.until_told,
            "order": "oldest" if self.oldest_first else "",
        }
        return {name: value for name, value in told.items() if value}

    def address(self, **more: str) -> str:
        """Of the page that shows it."""
        return "/dead?" + urlencode(self.fields | more)


def search(fields: Fields, now: int) -> Search:
    """What the fields say; `now` is the server's time, ms. Raises Problem (400)."""
    reason = one(fields, "reason")
    if reason and reason not in set(Reason):
        raise Problem(400, "reason: there is none of that name")
    since, until = one(fields, "since"), one(fields, "until")
    return Search(
        destination=one(fields, "destination"),
        reasons=frozenset([reason] if reason else ()),
        key=one(fields, "key") or None,
        text=one(fields, "text"),
        since=_moment("since", since, now),
        until=_moment("until", until, now),
        since_told=since,
        until_told=until,
        oldest_first=one(fields, "order") == "oldest",
    )


def place(text: str) -> Place | None:
    """Where a page goes on. Raises Problem (400)."""
    if not text:
        return None
    told = _PLACE.fullmatch(text)
    if told is None:
        raise Problem(400, "from: this is no place to go on from")
    return int(told[1]), int(told[2]), told[3]


class Found(Struct, frozen=True):
    """`onward` is where the next page goes on, None at the end; `spent`: the budget ended this one."""

    letters: list[Letter]
    looked: int
    last_at: int | None
    onward: str | None
    spent: bool


async def look(
    redis: Redis, namespace: str, names: Sequence[str], wanted: Search, start: Place | None
) -> Found:
    """One page."""
    sources = [_Source(redis, namespace, name, wanted, start) for name in names]
    await asyncio.gather(*(source.fill() for source in sources))
    heads = [(source.head, number) for number, source in enumerate(sources) if source.letters]
    heapq.heapify(heads)
    deadline, size, looked = time.monotonic() + SECONDS, 0, 0
    found: list[Letter] = []
    last: Letter | None = None
    spent = False
    while heads and len(found) < PAGE and not spent:
        _, number = heapq.heappop(heads)
        source = sources[number]
        last = source.letters.popleft()
        looked, size = looked + 1, size + last.size
        if wanted.admits(last):
            found.append(last)
        if not source.letters:
            await source.fill()
        if source.letters:
            heapq.heappush(heads, (source.head, number))
        spent = looked >= LOOKS or size >= BYTES or time.monotonic() >= deadline
    onward = None if last is None or not heads else f"{last.id}/{last.destination}"
    return Found(found, looked, None if last is None else last.died_at, onward, spent and len(found) < PAGE)


class _Source:
    """One destination's letters in the order of the page, some of them in memory."""

    def __init__(self, redis: Redis, namespace: str, name: str, wanted: Search, start: Place | None) -> None:
        self.letters: deque[Letter] = deque()
        self._redis: Any = redis
        self._key = keys.dead(namespace, name)
        self._name = name
        self._rises = wanted.oldest_first
        low, high = str(wanted.since or "-"), "+" if wanted.until is None else str(wanted.until)
        self._bounds = [low, high] if self._rises else [high, low]
        if start is not None:
            excluded = "(" if name <= start[2] else ""
            self._bounds[0] = self._clipped(f"{excluded}{start[0]}-{start[1]}", wanted)
        self._count = FIRST
        self._over = False

    @property
    def head(self) -> Place:
        """What the letters of all destinations are ordered by."""
        ms, _, number = self.letters[0].id.partition("-")
        sign = 1 if self._rises else -1
        return sign * int(ms), sign * int(number), self._name

    async def fill(self) -> None:
        """Read some more, unless there are none."""
        if self._over:
            return
        read = self._redis.xrange if self._rises else self._redis.xrevrange
        found = await read(self._key, *self._bounds, self._count)
        self._over = len(found) < self._count
        if not found:
            return
        self.letters.extend(Letter(self._name, each.decode(), fields) for each, fields in found)
        self._bounds[0] = f"({self.letters[-1].id}"
        average = sum(letter.size for letter in self.letters) // len(self.letters) + 1
        self._count = max(1, min(self._count * GROWTH, MOST_AT_ONCE, READ // average))

    def _clipped(self, start: str, wanted: Search) -> str:
        """A place outside of the time that is asked for is no way around it."""
        told = int(start.lstrip("(").partition("-")[0])
        if self._rises:
            return self._bounds[0] if wanted.since is not None and told < wanted.since else start
        return self._bounds[0] if wanted.until is not None and told > wanted.until else start


def _moment(name: str, text: str, now: int) -> int | None:
    if not text:
        return None
    try:
        return at(Moment().convert(text, None, None), now)
    except click.BadParameter as fault:
        raise Problem(400, f"{name}: {fault.message}") from fault


def _has(letter: Letter, text: str) -> bool:
    """Bytes where that will do: a hundred thousand letters are looked at in a second."""
    wanted = text.casefold()
    if text.isascii():
        told = wanted.encode()
        return any(told in letter.fields.get(name, b"").lower() for name in (b"key", b"error", b"alert"))
    return any(wanted in letter.text(name).casefold() for name in ("key", "error", "alert"))

"""Looks at every destination once a second, for all who look at the console.

Keeps the latest snapshots, the last minutes of each, and a board: the text of every figure that pages show,
by name. `changed` wakes who waits for the next one. What Redis does is waited out, and said on the board.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from redis import exceptions as errors
from redis.asyncio import Redis

from common import connect
from common.log import Log
from common.settings import Settings
from common.snapshot import snapshot
from common.trouble import Kind, kind_of
from ops import reach
from ops.console.board import Board, board
from ops.console.track import Track
from ops.tables import Seen

EVERY = 1.0  # seconds
LOOK = 5  # rounds until it is asked again which destinations Redis knows
AT_ONCE = 8  # snapshots under way
MOST_REMOVED = 100  # of which those that left the configuration are looked at

log = Log("console")


class Watch:
    """One for all viewers."""

    def __init__(self, redis: Redis, settings: Settings, troubled: Callable[[Kind], None]) -> None:
        self._redis = redis
        self._troubled = troubled
        self._known: dict[str, bool] = {}
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()
        self.tracks: dict[str, Track] = {}
        self.seen: list[Seen] = []
        self.fault: str | None = "Redis has not answered yet"
        self.extra: Callable[[], Board] = dict  # what others want on the board
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """From the next look on."""
        self._settings = settings
        self._round = 0
        self.board = board(self.seen, self.tracks, self.fault, {})

    def of(self, name: str) -> Seen | None:
        """What was seen of one destination."""
        return next((one for one in self.seen if one.snapshot.destination == name), None)

    @property
    def names(self) -> dict[str, bool]:
        """Every destination that was seen; True for one that left the configuration."""
        return {one.snapshot.destination: one.removed for one in self.seen}

    async def next(self, patience: float) -> None:
        """Until there is a new board, or for so many seconds."""
        try:
            async with asyncio.timeout(patience):
                await self._changed.wait()
        except TimeoutError:
            return

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(EVERY)

    async def look(self) -> None:
        """One round; after the one that is under way."""
        async with self._turn:
            try:
                self.seen = await self._look()
            except errors.RedisError as fault:
                self._say(fault)
            else:
                self.fault = None
                for one in self.seen:
                    self.tracks.setdefault(one.snapshot.destination, Track()).add(one.snapshot)
            self.board = board(self.seen, self.tracks, self.fault, self.extra())
            self._changed.set()
            self._changed = asyncio.Event()

    async def _look(self) -> list[Seen]:
        settings = self._settings
        if self._round % LOOK == 0:
            self._known = await reach.names(self._redis, settings)
        self._round += 1
        configured = [name for name, removed in self._known.items() if not removed]
        left = [name for name, removed in self._known.items() if removed][:MOST_REMOVED]
        found: list[Seen] = []
        for names in _batched([*configured, *left], AT_ONCE):
            looks = (snapshot(self._redis, settings.redis.namespace, name) for name in names)
            for one in await asyncio.gather(*looks):
                removed = self._known[one.destination]
                if not removed or one.depth or one.dead_letters or one.unaccounted:
                    found.append(Seen(one, removed))
        self.tracks = {name: self.tracks[name] for name in self._known if name in self.tracks}
        return found

    def _say(self, fault: errors.RedisError) -> None:
        """Once, while it is the same."""
        kind = kind_of(fault)
        self._troubled(kind)
        told = connect.describe(fault, self._settings.redis.url)
        if told != self.fault:
            log.warning("redis_trouble", kind=kind.value, redis=connect.masked(self._settings.redis.url))
        self.fault = told
        self._round = 0


def _batched(names: Sequence[str], size: int) -> list[Sequence[str]]:
    return [names[start : start + size] for start in range(0, len(names), size)]

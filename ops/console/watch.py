"""Looks at every destination once a second, for all who look at the console.

Keeps the latest snapshots, the last minutes of each, and a board: the text of every figure that pages show,
by name. `changed` wakes who waits for the next one. What Redis does is waited out, and said on the board;
where a server of a Cluster is away, its destinations stay as they were seen last, and are marked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from redis import exceptions as errors
from redis.asyncio import Redis

from common import connect
from common.log import Log
from common.settings import Settings
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
        self.unseen: dict[str, str] = {}  # in the latest look, and why
        self.fault: str | None = "Redis has not answered yet"
        self.extra: Callable[[], Board] = dict  # what others want on the board
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """From the next look on."""
        self._settings = settings
        self._round = 0
        self.board = board(self.seen, self.tracks, self.fault, {}, self.unseen)

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
                    if one.snapshot.destination not in self.unseen:
                        self.tracks.setdefault(one.snapshot.destination, Track()).add(one.snapshot)
            self.board = board(self.seen, self.tracks, self.fault, self.extra(), self.unseen)
            self._changed.set()
            self._changed = asyncio.Event()

    async def _look(self) -> list[Seen]:
        settings = self._settings
        if self._round % LOOK == 0:
            self._known, fault = await reach.listed(self._redis, settings, self._known)
            if fault is not None:
                self._troubled(kind_of(fault))
        self._round += 1
        configured = [name for name, removed in self._known.items() if not removed]
        left = [name for name, removed in self._known.items() if removed][:MOST_REMOVED]
        names = [*configured, *left]
        looks = await reach.snapshots(self._redis, settings.redis.namespace, names, AT_ONCE)
        before = {one.snapshot.destination: one.snapshot for one in self.seen}
        found: list[Seen] = []
        for name, looked in looks.items():
            one = before.get(name) if isinstance(looked, errors.RedisError) else looked
            removed = self._known[name]
            if one is not None and (not removed or one.depth or one.dead_letters or one.unaccounted):
                found.append(Seen(one, removed))
        self._mark({name: one for name, one in looks.items() if isinstance(one, errors.RedisError)})
        self.tracks = {name: self.tracks[name] for name in self._known if name in self.tracks}
        return found

    def _mark(self, faults: Mapping[str, errors.RedisError]) -> None:
        """Those that were not seen; the log has a line when they become others."""
        url = self._settings.redis.url
        for name, fault in faults.items():
            kind = kind_of(fault)
            self._troubled(kind)
            if name not in self.unseen:
                log.warning("redis_trouble", destination=name, kind=kind.value, redis=connect.masked(url))
        self.unseen = {name: connect.describe(fault, url) for name, fault in faults.items()}

    def _say(self, fault: errors.RedisError) -> None:
        """Once, while it is the same."""
        kind = kind_of(fault)
        self._troubled(kind)
        told = connect.describe(fault, self._settings.redis.url)
        if told != self.fault:
            log.warning("redis_trouble", kind=kind.value, redis=connect.masked(self._settings.redis.url))
        self.fault = told
        self.unseen = {}  # nothing was
        self._round = 0

"""Puts alerts into the streams of their destinations: the last step before the answer.

Takes the events of one request; returns one `Stored` per event once Redis has them all. Chooses which way a
request goes (`commit`): those with an alert for the object store go by themselves, so that it holds up nobody
else; those with many alerts go two ways in turns: what goes one way is prepared while Redis is at work on
the other. Raises Unavailable when anything could not be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle

from redis.asyncio import Redis

from common.alert import encode
from common.settings import Settings
from common.trouble import Kind
from common.wire import Wire
from ingest.commit import Committer
from ingest.event import Event, Stored
from ingest.route import Router

OBSERVED = 1024  # bytes that observe adds at most: key, incident, and an episode's start and severity
MANY = 100  # alerts in a request; fewer are better off in one call with others
WIRES = 3  # connections; two ways share one, so that beside a frozen Redis no one waits for more than two


class Appender:
    """Stores alerts with one configuration.

    Several may share `wires`; their commits then queue up. `measured` is told the size and the duration
    (seconds) of each commit, `troubled` each error of Redis.
    """

    def __init__(
        self,
        redis: Redis,
        settings: Settings,
        router: Router,
        *,
        cluster: bool,
        measured: Callable[[int, float], None] = lambda size, seconds: None,
        troubled: Callable[[Kind], None] = lambda kind: None,
        wires: Sequence[Wire] | None = None,
    ) -> None:
        few, many, more = wires or [Wire(redis) for _ in range(WIRES)]
        way = partial(
            Committer,
            settings=settings,
            router=router,
            cluster=cluster,
            measured=measured,
            troubled=troubled,
        )
        self._inline_limit = settings.ingest.inline_limit
        self._small, self._large = way(few), way(many)
        self._many = way(many), way(more)
        self._turns = cycle(self._many)

    async def submit(self, events: list[Event], size: int = 0) -> list[Stored]:
        """Store the events of a request of `size` bytes; all of them, or Unavailable."""
        return await self._way(events, size).submit(events, size) if events else []

    async def close(self) -> None:
        """Finish what was submitted."""
        for way in (self._small, self._large, *self._many):
            await way.close()

    def _way(self, events: list[Event], size: int) -> Committer:
        if self._has_large(events, size):
            return self._large
        return self._small if len(events) < MANY else next(self._turns)

    def _has_large(self, events: list[Event], size: int) -> bool:
        """Whether an alert may be too large for Redis; observe is still to add its part."""
        limit = self._inline_limit - OBSERVED
        return size > limit // 2 and any(len(encode(event.alert)) > limit for event in events)

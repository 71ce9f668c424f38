"""Group commit of alerts over one connection: observe, route and append all that arrived meanwhile.

Takes the events of one request; returns one `Stored` per event once Redis has them all (and has written
or replicated them, as `ingest.durability` says). All requests that arrive while one call is under way go
with the next one. Raises Unavailable when anything could not be stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TypeAlias

from redis import exceptions as errors

from common.append import CONFLICT, DEAD, DUPLICATE, DUPLICATE_DEAD, NO_ROOM, QUEUED, NotDurable, Store
from common.batching import Batcher, Overflow
from common.log import Log
from common.settings import Settings
from common.stored import Away
from common.trouble import Kind, kind_of
from common.wire import Wire
from ingest.event import Event, Stored, Unavailable
from ingest.observe import Observer, Routed
from ingest.route import Router

QUIET = 5.0  # seconds between two log lines about the object store
MOST = 1000  # alerts, or units of 16 KiB, in one script call; Lua's unpack stops at 8,000
_Request: TypeAlias = tuple[list[Event], int]

_ALL_QUEUED = {QUEUED}

log = Log("ingest")


class Committer:
    """One way into Redis. `measured` is told the size and the duration (seconds) of each commit, `troubled`
    each error of Redis."""

    def __init__(
        self,
        wire: Wire,
        settings: Settings,
        router: Router,
        *,
        cluster: bool,
        measured: Callable[[int, float], None],
        troubled: Callable[[Kind], None],
    ) -> None:
        self._wire = wire
        self._observer = Observer(wire, settings, router, cluster=cluster)
        self._store = Store(wire, settings, cluster=cluster)
        self._measured = measured
        self._troubled = troubled
        self._batcher: Batcher[_Request, list[Stored]] = Batcher(
            self._commit, most=MOST, bound=50 * MOST, weigh=lambda request: request[1], outage=Unavailable
        )
        self._told = float("-inf")  # when the log last heard of the object store

    async def submit(self, events: list[Event], size: int) -> list[Stored]:
        """Store the events of a request of `size` bytes; all of them, or Unavailable."""
        try:
            if len(events) <= MOST:
                return await self._batcher.submit((events, len(events) + size // 16384))
            parts = [events[start : start + MOST] for start in range(0, len(events), MOST)]
            stored = await self._batcher.submit_all(
                (part, len(part) + size // len(parts) // 16384) for part in parts
            )
        except Overflow:
            raise Unavailable("too many alerts are waiting to be stored") from None
        return [one for part in stored for one in part]

    async def close(self) -> None:
        """Finish what was submitted."""
        await self._batcher.close()
        await self._wire.close()

    async def _commit(self, requests: list[_Request]) -> Sequence[list[Stored] | Exception]:
        events = [event for request in requests for event in request[0]]
        started = perf_counter()
        try:
            routed = await self._observer.observe(events)
            codes = await self._append(routed, [event.trace for event in events])
        except NotDurable as fault:
            raise Unavailable(str(fault)) from fault
        except Away as fault:
            self._tell(fault)
            raise Unavailable("the object store could not take it") from fault  # the log says why
        except errors.RedisError as fault:
            kind = kind_of(fault)
            self._troubled(kind)
            raise Unavailable(f"Redis could not store it: {kind}") from fault
        self._measured(len(events), perf_counter() - started)
        stored = [_stored(item.alert.key, told) for item, told in zip(routed, codes, strict=True)]
        answers: list[list[Stored] | Exception] = []
        place = 0
        for own, _ in requests:
            end = place + len(own)
            answers.append(_no_room(codes[place:end]) or stored[place:end])
            place = end
        return answers

    def _tell(self, fault: Away) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._told >= QUIET:
            self._told = now
            log.warning("objects_away", error=fault)

    async def _append(self, routed: list[Routed], traces: list[str | None]) -> list[dict[str, int]]:
        """Per alert, what the script said for each of its destinations."""
        places: dict[str, list[int]] = {}
        for place, item in enumerate(routed):
            for name in item.destinations:
                places.setdefault(name, []).append(place)
        return await self._store.append([item.alert for item in routed], places, traces)


def _no_room(codes: list[dict[str, int]]) -> Unavailable | None:
    """What is to be said when anything of a request was not stored."""
    full = [name for told in codes for name, code in told.items() if code == NO_ROOM]
    if not full:
        return None
    return Unavailable(f"queue and dead letters are full: {', '.join(sorted(set(full)))}", retry_after=5)


def _stored(key: str, told: dict[str, int]) -> Stored:
    if set(told.values()) <= _ALL_QUEUED:  # the usual case
        return Stored(key, "queued", list(told), [])
    plain = {name: code % CONFLICT for name, code in told.items()}
    fresh = QUEUED in plain.values() or DEAD in plain.values()
    return Stored(
        key=key,
        status="queued" if fresh else "duplicate",
        destinations=[name for name, code in plain.items() if code in (QUEUED, DUPLICATE)],
        dead=[name for name, code in plain.items() if code in (DEAD, DUPLICATE_DEAD)],
        conflict=any(code > CONFLICT for code in told.values()),
    )

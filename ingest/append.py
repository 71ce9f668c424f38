"""Puts alerts into the streams of their destinations: the last step before the answer.

Takes the events of one request; returns one `Stored` per event once Redis has them all (and has written
or replicated them, as `ingest.durability` says). All requests that arrive while one call is under way go
with the next one. Raises Unavailable when anything could not be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from time import perf_counter
from typing import Any, TypeAlias

from redis import exceptions as errors
from redis.asyncio import Redis

from common import keys
from common.alert import Alert, encode
from common.batching import Batcher, Overflow
from common.policy import record_ttl, retry_policy
from common.scripts import Argument, Script
from common.settings import Settings
from common.trouble import Kind, kind_of
from common.wire import Command, Wire
from ingest.event import Event, Stored, Unavailable
from ingest.observe import Observer, Routed
from ingest.route import Router

MOST = 1000  # alerts, or units of 16 KiB, in one script call; Lua's unpack stops at 8,000
_script = Script("ingest", "append")
_Request: TypeAlias = tuple[list[Event], int]

QUEUED, DEAD, NO_ROOM, DUPLICATE, DUPLICATE_DEAD, CONFLICT = 1, 2, 3, 4, 5, 10
_ALL_QUEUED = {QUEUED}


class Appender:
    """Observe, route and append, by group commit.

    `measured` is told the size and the duration (seconds) of each commit, `troubled` each error of Redis.
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
    ) -> None:
        self._wire = Wire(redis)
        self._settings = settings
        self._namespace = settings.redis.namespace
        self._observer = Observer(self._wire, settings, router, cluster=cluster)
        self._cluster = cluster
        self._measured = measured
        self._troubled = troubled
        self._caps: dict[str, list[Argument]] = {
            to.name: [
                settings.queue.max_depth,
                settings.queue.max_dead,
                record_ttl(retry_policy(to), settings.dedupe.remember).ms,
            ]
            for to in settings.destinations
        }
        self._batcher: Batcher[_Request, list[Stored]] = Batcher(
            self._commit, most=MOST, bound=50 * MOST, weigh=lambda request: request[1], outage=Unavailable
        )

    async def submit(self, events: list[Event], size: int = 0) -> list[Stored]:
        """Store the events of a request of `size` bytes; all of them, or Unavailable."""
        if not events:
            return []
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
            codes = await self._append(routed)
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

    async def _append(self, routed: list[Routed]) -> list[dict[str, int]]:
        """Per alert, what the script said for each of its destinations."""
        places: dict[str, list[int]] = {}
        for place, item in enumerate(routed):
            for name in item.destinations:
                places.setdefault(name, []).append(place)
        codes: list[dict[str, int]] = [{} for _ in routed]
        if not places:
            return codes
        stored = [(item.alert.key, content(item.alert), encode(item.alert)) for item in routed]
        groups = [[name] for name in places] if self._cluster else [list(places)]
        commands = [self._command(group, places, stored) for group in groups]
        replies = await self._call(list(places), commands)
        for group, reply in zip(groups, replies, strict=True):
            told = iter(reply)
            for name in group:
                for place in places[name]:
                    codes[place][name] = next(told)
        return codes

    def _command(
        self, names: list[str], places: dict[str, list[int]], stored: list[tuple[str, str, bytes]]
    ) -> tuple[list[str], list[Argument]]:
        wanted = sorted({place for name in names for place in places[name]})
        order = {place: n for n, place in enumerate(wanted, 1)}
        touched: list[str] = []
        args: list[Argument] = [len(wanted), len(names), int(self._settings.ingest.durability != "written")]
        for place in wanted:
            args += stored[place]
        for name in names:
            at = keys.Destination(self._namespace, name)
            touched += (at.stream, at.retry, at.dead, at.ledger)
            touched += [at.record(stored[place][0]) for place in places[name]]
            args += (*self._caps[name], len(places[name]), *(order[place] for place in places[name]))
        return touched, args

    async def _call(self, names: list[str], commands: list[tuple[list[str], list[Argument]]]) -> list[Any]:
        try:
            return await self._send(names, commands)
        except errors.NoScriptError:
            await _script.load(self._wire)
            return await self._send(names, commands)  # idempotent: what did go in is a duplicate now

    async def _send(self, names: list[str], commands: list[tuple[list[str], list[Argument]]]) -> list[Any]:
        pipeline: list[Command] = [("SADD", keys.destinations(self._namespace), *names)]
        for touched, args in commands:
            pipeline.append(("EVALSHA", _script.digest, len(touched), *touched, *args))
        ingest = self._settings.ingest
        if ingest.durability == "replicated":
            pipeline.append(("WAIT", ingest.replicas, ingest.durability_timeout.ms))
        elif ingest.durability == "fsynced":
            pipeline.append(("WAITAOF", 1, 0, ingest.durability_timeout.ms))
        replies = await self._wire.pipeline(pipeline)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        if ingest.durability == "replicated" and replies[-1] < ingest.replicas:
            raise Unavailable(f"only {replies[-1]} of {ingest.replicas} replicas have it so far")
        if ingest.durability == "fsynced" and replies[-1][0] < 1:
            raise Unavailable("it is not on disk so far")
        return replies[1 : 1 + len(commands)]


def content(alert: Alert) -> str:
    """Hash of what makes an alert the same: all but value, times and annotations.

    The summary of a reading's alert is made from its rule and its value, and differs with each reading.
    """
    summary = None if alert.source == "reading" else alert.summary
    told = (alert.incident, alert.host, alert.name, alert.status, alert.severity, summary, alert.url)
    labels = sorted(alert.labels.items()) if alert.labels else None
    return blake2b(encode((told, labels)), digest_size=8).hexdigest()


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

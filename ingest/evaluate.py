"""Readings to alerts, by rules: stores each reading, keeps the episodes of rules with `clear`.

Lies between parse and observe. Takes readings, returns the events that each of them makes; all that arrive
while one script call is under way go with the next (`lua/evaluate.lua`). Raises Unavailable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct
from redis.asyncio import Redis
from redis.exceptions import RedisError

from common import keys
from common.batching import Batcher, Overflow
from common.scripts import Argument, Script
from common.settings import Settings
from common.trouble import Kind, kind_of
from common.wire import Wire
from ingest.event import Event, Reading, Unavailable
from ingest.rules import Judgement, Rules

MOST = 500  # readings in one call: a few milliseconds of the server's time
BOUND = 20_000  # readings that wait; more than a request may have
_script = Script("ingest", "evaluate")
_encode = msgspec.json.Encoder().encode


class _Item(Struct):
    reading: Reading
    judgements: list[Judgement]


class Evaluator:
    """The rules of one configuration, and their state in Redis, which every replica shares.

    Several may share a `wire`, their commits then queue up. `troubled` is told each error of Redis.
    """

    def __init__(
        self,
        redis: Redis,
        settings: Settings,
        *,
        troubled: Callable[[Kind], None] = lambda kind: None,
        wire: Wire | None = None,
    ) -> None:
        self._rules = Rules(settings.rules)
        self._wire = wire or Wire(redis)
        self._troubled = troubled
        self._namespace = settings.redis.namespace
        self._keep = settings.readings.keep
        self._remember = settings.dedupe.remember.ms
        self._stream = keys.readings(self._namespace)
        self._batcher: Batcher[_Item, list[Event]] = Batcher(
            self._commit, most=MOST, bound=BOUND, outage=Unavailable
        )

    async def submit(self, readings: list[Reading]) -> list[list[Event]]:
        """The events of each reading, in order. Raises Unavailable: not all of them are stored."""
        try:
            return await self._batcher.submit_all(
                _Item(reading, self._rules.judge(reading)) for reading in readings
            )
        except Overflow:
            raise Unavailable("too many readings are waiting for Redis") from None

    async def close(self) -> None:
        """Wait for what is under way."""
        await self._batcher.close()
        await self._wire.close()

    async def _commit(self, items: list[_Item]) -> Sequence[list[Event] | Exception]:
        used, args = self._arguments(items)
        try:
            due = await _script(self._wire, used, args)
        except RedisError as fault:
            kind = kind_of(fault)
            self._troubled(kind)
            raise Unavailable(f"Redis could not store it: {kind}") from fault
        return _events(items, due)

    def _arguments(self, items: list[_Item]) -> tuple[list[str], list[Argument]]:
        places: dict[str, int] = {self._stream: 1}
        args: list[Argument] = [self._keep, self._remember, len(items)]
        for item in items:
            reading = item.reading
            told = (reading.host, reading.metric, repr(reading.value), reading.timestamp)
            args += [*told, _encode(reading.labels)]
        for item in items:
            for judgement in item.judgements:
                if judgement.rule.clear is not None:
                    key = keys.rule(self._namespace, judgement.incident)
                    place = places.setdefault(key, len(places) + 1)
                    args += [place, judgement.verdict.value, judgement.reading.timestamp]
        return list(places), args


def _events(items: list[_Item], due: list[bytes]) -> list[list[Event]]:
    """Each item's events; `due` is what the script returned."""
    times = iter(due)
    found: list[list[Event]] = []
    for item in items:
        events: list[Event] = []
        for judgement in item.judgements:
            if judgement.rule.clear is None:
                events.append(judgement.event())
                continue
            start, ended = next(times), next(times)
            if start:
                events.append(judgement.event(int(start), int(ended) if ended else None))
        found.append(events)
    return found

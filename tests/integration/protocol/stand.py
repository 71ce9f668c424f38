"""One destination on a real server and the steps to use on it, for tests of one step each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis

from common.alert import Alert
from common.keys import Destination
from common.outcomes import Settlement
from common.record import Record, parse
from common.scripts import Script
from common.settings import Breaker, Queue
from common.snapshot import Snapshot, snapshot
from common.units import Duration
from common.wire import Wire
from dispatcher.claim import JustRead, Verdict, claim
from dispatcher.entry import Entry, read
from dispatcher.settle import Caps, Settled, settle
from dispatcher.settling import Settling
from dispatcher.take import Care, Taken, make_group, take
from ingest.append import Appender
from ingest.event import Event, Stored
from ingest.route import Router
from tests.integration.protocol.picture import NAMESPACE
from tests.support.deliveries import alert
from tests.support.settings import build

TTL = 3_600_000
FIVE = Breaker(failures=5, open=Duration(30))
_replay = Script("ops", "replay")


class Stand:
    """Replicas are just names here: `take("a")`, `claim("a", entries)`, `settle("a", entry, Delivered())`."""

    def __init__(self, redis: Redis, *, cluster: bool) -> None:
        self.redis: Any = redis  # whose annotations would have every answer be anything
        self.wire = Wire(redis)
        self.at = Destination(NAMESPACE, "one")
        self.cluster = cluster
        self.limit()

    async def begin(self) -> None:
        """Make the group."""
        await make_group(self.redis, self.at)

    def limit(self, max_depth: int = 1000, max_dead: int = 1000) -> None:
        """Caps from now on."""
        settings = build(destinations=["one"], queue=Queue(max_depth=max_depth, max_dead=max_dead))
        self.appender = Appender(self.redis, settings, Router(settings), cluster=self.cluster)
        self.max_dead = max_dead

    async def append(self, *keys: str, **fields: Any) -> list[Stored]:
        """One request of alerts with these keys."""
        return await self.appender.submit([event(key, **fields) for key in keys])

    async def take(self, consumer: str, most: int = 100) -> list[Entry]:
        """Entries."""
        return (await self.taken(consumer, most)).entries

    async def taken(self, consumer: str, most: int = 100) -> Taken:
        """Entries and the rest of the answer."""
        return await take(self.wire, self.at, consumer, most)

    async def carefully(
        self, consumer: str, most: int = 100, rate: float | None = None, besides: int = 0
    ) -> Taken:
        """The same on the careful way."""
        care = Care(rate, 10_000, besides)
        return await take(self.wire, self.at, consumer, most, care=care)

    async def claim(self, consumer: str, *entries: Entry, just_read: JustRead | None = None) -> list[Verdict]:
        """Verdicts."""
        deliveries = [read(entry) for entry in entries]
        return await claim(self.wire, self.at, consumer, TTL, deliveries, just_read)

    async def just_read(self, ms: int = 900) -> JustRead:
        """What was read is surely the reader's for so long."""
        seconds, micros = await self.redis.time()
        return JustRead(seconds * 1000 + micros // 1000 + ms, self.wire.connections)

    async def settle(
        self, consumer: str, *batch: tuple[Entry, Settlement], claimed: bool = True, readable: bool = True
    ) -> list[Settled]:
        """Answers."""
        items = [
            Settling(entry, read(entry) if readable else None, settlement, claimed)
            for entry, settlement in batch
        ]
        return await settle(self.wire, self.at, consumer, Caps(self.max_dead, TTL, TTL), items)

    async def tell(
        self, consumer: str, *items: Settling, breaker: Breaker = FIVE, lease_back: bool = False
    ) -> list[Settled]:
        """Answers to whole settlements."""
        caps = Caps(self.max_dead, TTL, TTL, breaker)
        return await settle(self.wire, self.at, consumer, caps, items, lease_back=lease_back)

    async def gate(self) -> dict[str, str]:
        """Its fields."""
        return {n.decode(): v.decode() for n, v in (await self.redis.hgetall(self.at.gate)).items()}

    async def claimed(self, consumer: str, *keys: str) -> list[Entry]:
        """Appended, taken and claimed."""
        await self.append(*keys)
        entries = await self.take(consumer)
        assert await self.claim(consumer, *entries) == [Verdict.DELIVER] * len(keys)
        return entries

    async def replay(self, *ids: str, most: int = 100, max_depth: int = 1000, force: str = "") -> Any:
        """What the operator's script says, but for its words."""
        at = self.at
        words = [f"limit={most}", f"max_depth={max_depth}", *filter(None, [force]), *ids]
        return (await _replay(self.redis, [at.stream, at.dead, at.ledger, at.retry], words))[:3]

    async def record(self, key: str) -> Record | None:
        """The record, if there is one."""
        stored = await self.redis.get(self.at.record(key))
        return None if stored is None else parse(stored)

    async def state(self, key: str) -> str:
        """The record's state."""
        record = await self.record(key)
        return "absent" if record is None else str(record.state)

    async def look(self) -> Snapshot:
        """Depth, dead letters, ledger."""
        return await snapshot(self.redis, NAMESPACE, "one")

    async def balanced(self) -> Snapshot:
        """The same, with a ledger that is exact."""
        now = await self.look()
        assert now.unaccounted == 0, now
        assert sum(now.died.values()) == now.ledger.died, now
        return now

    async def letters(self) -> list[dict[str, str]]:
        """Dead letters, oldest first."""
        found = await self.redis.xrange(self.at.dead)
        return [{n.decode(): v.decode() for n, v in fields.items()} for _, fields in found]


def event(key: str, **fields: Any) -> Event:
    """An alert with a key of its own."""
    return Event(made(**fields), key=key)


def made(**fields: Any) -> Alert:
    """An alert."""
    return alert(**fields)


def ids(entries: Sequence[Entry]) -> list[str]:
    """Their ids."""
    return [entry.id for entry in entries]

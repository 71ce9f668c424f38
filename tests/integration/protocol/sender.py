"""A sender of bodies in any format, through every step up to the streams, and what is in those then."""

from __future__ import annotations

from typing import Any

import msgspec
from multidict import CIMultiDict
from redis.asyncio import Redis

from common import keys
from common.alert import Alert, decode
from common.outcomes import Delivered
from common.settings import Rule, Settings
from common.wire import Wire
from dispatcher.claim import Verdict, claim
from dispatcher.entry import Entry, read
from dispatcher.settle import Caps, settle
from dispatcher.settling import Settling
from dispatcher.take import make_group, take
from ingest.append import Appender
from ingest.evaluate import Evaluator
from ingest.event import Event, Reading, Stored
from ingest.formats import bodies, native
from ingest.parse import FORMATS
from ingest.route import Router
from tests.integration.protocol.picture import NAMESPACE

TEN = 1_764_410_400  # 2025-11-29T10:00:00Z, in seconds
WINDOW = TEN // 60
LIMIT = 1024 * 1024
RULES = [
    Rule(name="full", metric="disk", when=">= 100", clear="< 90", severity="critical"),
    Rule(name="hot", metric="heat", when="> 80"),
    Rule(name="any", metric="space", when="> 90", by=["disk"]),
    Rule(name="filled", metric="disk.full", when=">= 100", clear="< 90"),
]
JSON = {"Content-Type": "application/json"}


class Sender:
    """Posts bodies, and looks at what is in the streams then."""

    def __init__(self, redis: Redis, settings: Settings, *, cluster: bool) -> None:
        self.redis: Any = redis  # whose annotations would have every answer be anything
        self.wire = Wire(redis)
        self._appender = Appender(redis, settings, Router(settings), cluster=cluster)
        self._evaluator = Evaluator(redis, settings)

    async def alert(self, **body: Any) -> Stored:
        """One alert, `at` seconds after ten o'clock."""
        parsed = native.alerts(_body(body), bodies.Kind.JSON, TEN * 1000, LIMIT)
        assert not parsed.rejected
        [stored] = await self._appender.submit([event for _, event in parsed.items])
        return stored

    async def reading(self, **body: Any) -> list[Stored]:
        """One reading."""
        parsed = native.readings(_body(body), bodies.Kind.JSON, TEN * 1000, LIMIT)
        assert not parsed.rejected
        [events] = await self._evaluator.submit([reading for _, reading in parsed.items])
        return await self._appender.submit(events)

    async def post(
        self, route: str, body: object, now: int = TEN * 1000, headers: dict[str, str] = JSON
    ) -> list[Stored]:
        """One request in the format of a route, `now` in ms by the clock of ingest."""
        parsed = FORMATS[route].reader(CIMultiDict(headers))(msgspec.json.encode(body), now, LIMIT)
        assert not parsed.rejected
        events = [item for _, item in parsed.items if isinstance(item, Event)]
        readings = [item for _, item in parsed.items if isinstance(item, Reading)]
        made = await self._evaluator.submit(readings) if readings else []
        return await self._appender.submit(events + [event for of_one in made for event in of_one])

    async def stream(self, name: str = "chat") -> list[Alert]:
        """Deliveries that wait there."""
        entries = await self.redis.xrange(keys.stream(NAMESPACE, name))
        return [decode(fields[b"alert"]) for _, fields in entries]

    async def keys(self, name: str = "chat") -> list[str]:
        """Their keys."""
        return [alert.key for alert in await self.stream(name)]


def _body(body: dict[str, Any]) -> bytes:
    given: dict[str, Any] = {"host": "db1", **body}
    if "at" in given:
        given["timestamp"] = TEN + given.pop("at")
    return msgspec.json.encode(given)


async def deliver_resolutions_first(sender: Sender) -> list[tuple[int, Verdict]]:
    """Deliver the chat's resolutions; then each firing's time in seconds and what its claim says."""
    at = keys.Destination(NAMESPACE, "chat")
    await make_group(sender.redis, at)
    entries = (await take(sender.wire, at, "r", 100)).entries
    firings = [entry for entry in entries if read(entry).alert.status == "firing"]
    for entry in entries:
        if entry not in firings:
            assert await _claim(sender, at, [entry]) == [Verdict.DELIVER]
            item = Settling(entry, read(entry), Delivered(200), True)
            await settle(sender.wire, at, "r", Caps(10, 60_000, 60_000), [item])
    verdicts = await _claim(sender, at, firings)
    times = [read(entry).alert.timestamp // 1000 for entry in firings]
    return list(zip(times, verdicts, strict=True))


async def _claim(sender: Sender, at: keys.Destination, entries: list[Entry]) -> list[Verdict]:
    return await claim(sender.wire, at, "r", 60_000, [read(entry) for entry in entries])

"""Sees to it that no sender sends more than its rate, in the whole fleet: a step between parse and evaluate.

Takes a sender and how many alerts and readings it wants stored; returns how long it has to wait first. What
comes while one script call is under way goes with the next (`lua/spend.lua`). Raises Unavailable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from redis.asyncio import Redis
from redis.exceptions import RedisError

from common import keys
from common.batching import Batcher, Overflow
from common.scripts import Argument, Script
from common.settings import Settings
from common.trouble import Kind, kind_of
from common.wire import Wire
from ingest.event import Unavailable
from ingest.senders import Sender

MOST = 1000  # requests in one call
_Item: TypeAlias = tuple[str, float, int]  # key, rate, alerts
_script = Script("ingest", "spend")


class Spender:
    """The rates of senders, which all replicas share.

    Several may share a `wire`, their calls then queue up. `troubled` is told each error of Redis.
    """

    def __init__(
        self,
        redis: Redis,
        settings: Settings,
        *,
        troubled: Callable[[Kind], None] = lambda kind: None,
        wire: Wire | None = None,
    ) -> None:
        self._wire = wire or Wire(redis)
        self._namespace = settings.redis.namespace
        self._troubled = troubled
        self._batcher: Batcher[_Item, int] = Batcher(
            self._commit, most=MOST, bound=50 * MOST, outage=Unavailable
        )

    async def spend(self, sender: Sender, alerts: int) -> float:
        """Seconds after which this may be sent again; 0: it may go on now. Raises Unavailable."""
        if sender.rate is None:
            return 0.0
        item = keys.allowance(self._namespace, sender.name), sender.rate, alerts
        try:
            return await self._batcher.submit(item) / 1000
        except Overflow:
            raise Unavailable("too many requests are waiting for Redis") from None

    async def close(self) -> None:
        """Wait for what is under way."""
        await self._batcher.close()
        await self._wire.close()

    async def _commit(self, items: list[_Item]) -> Sequence[int | Exception]:
        rates = {key: rate for key, rate, _ in items}
        places = {key: place for place, key in enumerate(rates, 1)}
        args: list[Argument] = [repr(rate) for rate in map(float, rates.values())]
        for key, _, alerts in items:
            args += (places[key], alerts)
        try:
            told: list[int] = await _script(self._wire, list(rates), args)
        except RedisError as fault:
            kind = kind_of(fault)
            self._troubled(kind)
            raise Unavailable(f"Redis could not count it: {kind}") from fault
        return told

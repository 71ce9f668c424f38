"""Makes taken entries ours before anything is sent: one script call for a batch.

Takes deliveries; returns one verdict each. Raises what redis-py raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from redis.asyncio import Redis

from common.alert import Status
from common.keys import GROUP, Destination
from common.scripts import Argument, Script
from dispatcher.destinations.base import Delivery

_script = Script("dispatcher", "claim")


class Verdict(IntEnum):
    """What the claim script says of an entry."""

    DELIVER = 1
    DUPLICATE = 2
    LOOK_AGAIN = 3
    SUPERSEDED = 4
    NOT_MINE = 5


async def claim(
    redis: Redis, keys: Destination, consumer: str, ttl: int, deliveries: Sequence[Delivery]
) -> list[Verdict]:
    """One verdict per delivery, in order; `ttl` of the records in ms."""
    touched = [keys.stream]
    args: list[Argument] = [GROUP, consumer, ttl]
    for delivery in deliveries:
        alert = delivery.alert
        touched += (keys.record(delivery.key), keys.resolved(alert.incident))
        args += (
            delivery.entry_id,
            delivery.deliveries,
            delivery.attempt - 1,
            delivery.first_at,
            "" if alert.status is Status.RESOLVED else alert.since,
            "1" if delivery.force else "",
        )
    return [Verdict(code) for code in await _script(redis, touched, args)]

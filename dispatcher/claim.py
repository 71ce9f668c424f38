"""Makes taken entries ours before anything is sent: one script call for a batch.

Takes deliveries; returns one verdict each. Raises what redis-py raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from common.alert import Status
from common.keys import GROUP, Destination
from common.scripts import Argument, Script, Server
from dispatcher.destinations.base import Delivery

_script = Script("dispatcher", "claim")


class Verdict(IntEnum):
    """What the claim script says of an entry."""

    DELIVER = 1
    DUPLICATE = 2
    LOOK_AGAIN = 3
    SUPERSEDED = 4
    NOT_MINE = 5


_VERDICTS = {int(verdict): verdict for verdict in Verdict}


async def claim(
    redis: Server, keys: Destination, consumer: str, ttl: int, deliveries: Sequence[Delivery]
) -> list[Verdict]:
    """One verdict per delivery, in their order, which is the stream's; `ttl` of the records in ms."""
    touched = [keys.stream]
    args: list[Argument] = [GROUP, consumer, ttl]
    for delivery in deliveries:
        touched.append(keys.record(delivery.key))
        args += (
            delivery.entry_id,
            delivery.deliveries,
            delivery.attempt - 1,
            delivery.first_at,
            _since(delivery),
        )
    touched += [keys.resolved(delivery.alert.incident) for delivery in deliveries]
    return [_VERDICTS[code] for code in await _script(redis, touched, args)]


def _since(delivery: Delivery) -> Argument:
    if delivery.force:
        return "force"
    return "" if delivery.alert.status is Status.RESOLVED else delivery.alert.since

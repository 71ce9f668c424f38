"""Makes taken entries ours before anything is sent: one script call for a batch.

Takes deliveries, and until when they are surely nobody else's; returns one verdict each. Raises what redis-py
raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from msgspec import Struct

from common.alert import Status
from common.keys import GROUP, Destination
from common.scripts import Argument, Script
from common.wire import Wire
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


class JustRead(Struct, frozen=True):
    """Why entries are surely pending under their reader: nobody can have taken them over before `until`
    (server's time, ms) on the server they were read from, the one the wire had made `connections` to."""

    until: int
    connections: int


async def claim(
    wire: Wire,
    keys: Destination,
    consumer: str,
    ttl: int,
    deliveries: Sequence[Delivery],
    just_read: JustRead | None = None,
) -> list[Verdict]:
    """One verdict per delivery, in their order, which is the stream's; `ttl` of the records in ms.

    With `just_read` the group is asked only about those of which the records tell that something has
    happened. A server that was connected to since then may not know of the read: it is asked about all.
    """
    until = 0 if just_read is None else just_read.until
    verdicts = await _claim(wire, keys, consumer, ttl, deliveries, until)
    if just_read is not None and wire.connections != just_read.connections:
        verdicts = await _claim(wire, keys, consumer, ttl, deliveries, 0)
    return verdicts


async def _claim(
    wire: Wire, keys: Destination, consumer: str, ttl: int, deliveries: Sequence[Delivery], until: int
) -> list[Verdict]:
    touched = [keys.stream]
    resolved: list[str] = []
    args: list[Argument] = [GROUP, consumer, ttl, len(deliveries), until]
    for delivery in deliveries:
        since = _since(delivery)
        touched.append(keys.record(delivery.key))
        if isinstance(since, int):
            resolved.append(keys.resolved(delivery.alert.incident))
        args += (
            delivery.entry_id,
            delivery.deliveries,
            delivery.attempt - 1,
            delivery.first_at,
            since,
        )
    return [_VERDICTS[code] for code in await _script(wire, touched + resolved, args)]


def _since(delivery: Delivery) -> Argument:
    if delivery.force:
        return "force"
    return "" if delivery.alert.status is Status.RESOLVED else delivery.alert.since

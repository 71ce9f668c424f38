"""Keeps what is in work from being reclaimed, beside the steps of the way.

Takes the ids in work; returns those that are somebody else's by now and those whose entry has vanished
from the stream (still pending, so that their settlement counts). Raises what redis-py raises.
"""

from __future__ import annotations

from collections.abc import Sequence

from redis.asyncio import Redis

from common.keys import GROUP, Destination
from common.scripts import Script

_script = Script("dispatcher", "keep_alive")


async def keep_alive(
    redis: Redis, keys: Destination, consumer: str, ids: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Refresh the idle time of entries in work, without counting a delivery."""
    gone, vanished = await _script(redis, [keys.stream], [GROUP, consumer, *ids])
    return [entry_id.decode() for entry_id in gone], [entry_id.decode() for entry_id in vanished]

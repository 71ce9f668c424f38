"""Waiting out what Redis does: counted, told, and with backoff; a group that is gone is made again.

One per lane. Takes what redis-py raised; returns when the next try is due. Raises nothing.
"""

from __future__ import annotations

import asyncio
import random
import time

from redis import exceptions as errors

from common.keys import Destination
from common.log import Log
from common.trouble import Kind, kind_of
from dispatcher.replica import Replica
from dispatcher.take import make_group

log = Log("dispatcher")

LONGEST = 5.0  # seconds between two tries, and never so long that others take over what is in work
QUIET = 10.0  # seconds between two log lines about the same kind


class Trouble:
    """What one lane goes through."""

    def __init__(self, replica: Replica, name: str, keys: Destination) -> None:
        self._replica = replica
        self._name = name
        self._keys = keys
        self._longest = min(LONGEST, replica.settings.dispatcher.visibility_timeout / 6)
        self._streak = 0
        self._told: dict[Kind, float] = {}

    def over(self) -> None:
        """Redis has done what it was asked."""
        self._streak = 0

    async def wait_out(self, fault: errors.RedisError, *, patient: bool = False) -> None:
        """Return when the next try is due, or at once when the replica stops; `patient` waits even then."""
        self._tell(fault)
        if kind_of(fault) is Kind.NOGROUP:
            await self._make_group()
        self._streak = min(self._streak + 1, 10)
        delay = random.random() * min(self._longest, 0.05 * 2**self._streak)  # noqa: S311 - jitter
        await (asyncio.sleep(delay) if patient else self._replica.pause(delay))

    async def _make_group(self) -> None:
        try:
            if await make_group(self._replica.redis, self._keys):
                self._replica.metrics.group_recreated.inc()
                log.warning("group_recreated", destination=self._name)
            self._streak = 0  # it answers again: what an outage before this added up to is over
        except errors.RedisError as fault:
            self._tell(fault)

    def _tell(self, fault: errors.RedisError) -> None:
        kind, now = kind_of(fault), time.monotonic()
        self._replica.metrics.errors[kind].inc()
        if now - self._told.get(kind, -QUIET) >= QUIET:
            self._told[kind] = now
            log.warning("redis_trouble", destination=self._name, kind=kind, error=fault)

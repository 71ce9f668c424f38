"""What all destinations of one dispatcher process share, made once at its start."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from redis.asyncio import Redis

from common.service import either
from common.settings import Destination, Settings
from dispatcher.destinations.base import DestinationType
from dispatcher.metrics import Metrics
from dispatcher.quarantine import Quarantine

if TYPE_CHECKING:
    from common.otel import Telemetry


def consumer_name() -> str:
    """The pod's or host's name and a nonce, so that no two process starts share a consumer."""
    host = os.environ.get("HOSTNAME") or socket.gethostname()
    return f"{''.join(c if c.isalnum() or c in '.-_' else '-' for c in host)[:63]}-{secrets.token_hex(4)}"


class Clock:
    """The server's clock, as far as it is known here."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def set(self, server_ms: int) -> None:
        """The server has just said what time it is."""
        self._ahead = server_ms - time.time() * 1000

    def now(self) -> int:
        """Server time in ms."""
        return int(time.time() * 1000 + self._ahead)


class Pulse:
    """Whether Redis has been answering all along.

    After a silence (a frozen server, or this process stood still) nobody's idle times mean anything until
    the living owners have refreshed them: `steady` is false for as long as that takes.
    """

    def __init__(self, visibility: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._longest = visibility * 0.6
        self._rest = visibility * 0.5
        self._clock = clock
        self._last = clock()
        self._until = 0.0

    def beat(self) -> None:
        """Redis has just answered."""
        now = self._clock()
        if now - self._last > self._longest:
            self._until = now + self._rest
        self._last = now

    def steady(self) -> bool:
        """Whether idle times can be trusted."""
        return self._clock() >= self._until


class Replica(Struct):
    """Shared by the lanes of one process. `bell` is the client for calls that block."""

    redis: Redis
    bell: Redis
    consumer: str
    settings: Settings
    metrics: Metrics
    quarantine: Quarantine
    clock: Clock
    pulse: Pulse
    stopping: asyncio.Event
    tasks: asyncio.TaskGroup  # a bug in one ends the process
    telemetry: Telemetry | None = None
    sink: Callable[[Destination], DestinationType] | None = None  # where canaries end; None: where they say

    async def pause(self, seconds: float) -> None:
        """Sleep, but not beyond the order to stop."""
        await either(self.stopping, seconds)

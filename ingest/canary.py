"""Beside the way: sends a canary to each destination's way, as if a sender had posted an alert.

From `observe` on it is what happens to real alerts, with the same code over the same connections. All
processes of a fleet send the canary of a minute at its beginning; it has the same key everywhere, so that
one of them brings it in and the others' are duplicates. What can't be stored is told, and tried again with
the next one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from common import canary
from common.alert import Alert
from common.log import Log
from common.service import either
from common.units import Duration
from ingest.append import Appender
from ingest.event import Event, Unavailable

log = Log("ingest")


class Canaries:
    """Of one process; off until `use` says otherwise. `clock` in ms since the epoch."""

    def __init__(self, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._clock = clock
        self._appender: Appender | None = None
        self._every: Duration | None = None
        self._changed = asyncio.Event()

    def use(self, appender: Appender, every: Duration | None) -> None:
        """From now on so often, over an appender made with the settings of `common.canary`."""
        self._appender, self._every = appender, every
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._changed.clear()
            if self._appender is None or self._every is None:
                await self._changed.wait()
                continue
            await _send(self._appender, self._clock())
            period = self._every.ms
            await either(self._changed, (period - self._clock() % period) / 1000)

    async def close(self) -> None:
        """Finish what is under way."""
        if self._appender is not None:
            await self._appender.close()


async def _send(appender: Appender, now: int) -> None:
    alert = Alert(incident=canary.INCIDENT, host="redispatch", name="canary", timestamp=now)
    try:
        await appender.submit([Event(alert)])
    except Unavailable as fault:
        log.warning("canary_refused", error=fault.detail)
    except Exception as bug:  # noqa: BLE001 - what is only there to look must not end what it looks at
        log.error("canary_broke", fault=bug)

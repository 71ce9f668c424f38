"""Who may use a data directory: one `up` at a time, and not before the previous one's children are gone.

Two locks. `owner` is held by an `up` that has not begun to stop. `lock` is held by it and, since the
descriptor is handed down, by each of its children: it is free when the last of them has ended, whatever
became of `up`. Raises Held.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE = 40.0  # seconds; the services drain for 25 by default, then the server writes its data


class Held(Exception):
    """Somebody else uses the directory."""


class DataLock:
    """`async with DataLock(directory, say) as lock`; `say` tells a person that this waits."""

    def __init__(self, directory: Path, say: Callable[[str], None], patience: float = PATIENCE) -> None:
        self._directory = directory
        self._say = say
        self._patience = patience
        self._owner = -1
        self.descriptor = -1

    async def __aenter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._owner = os.open(self._directory / "owner", os.O_RDWR | os.O_CREAT, 0o600)
        self.descriptor = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not _take(self._owner):
                raise Held(f"redispatch up already runs with the data in {self._directory}; stop it first")
            await self._wait()
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def leave(self) -> None:
        """From now on the next one waits instead of being refused."""
        fcntl.flock(self._owner, fcntl.LOCK_UN)

    async def _wait(self) -> None:
        deadline = time.monotonic() + self._patience
        if not _take(self.descriptor):
            self._say(f"the previous redispatch up in {self._directory} is still stopping; waiting for it")
        while not _take(self.descriptor):
            if time.monotonic() > deadline:
                raise Held(
                    f"something that the previous redispatch up started still runs and holds "
                    f"{self._directory / 'lock'} after {self._patience:.0f} s; end it first"
                )
            await asyncio.sleep(0.1)

    def _close(self) -> None:
        for descriptor in (self._owner, self.descriptor):
            os.close(descriptor)


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

"""What this process holds: file descriptors and tasks, to be the same after as before."""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter

from tests.support.fleet import eventually


def descriptors(pid: int | None = None) -> int:
    """How many are open in that process, or in this one."""
    return len(os.listdir(f"/proc/{pid or 'self'}/fd"))  # noqa: PTH208 - names only


def tasks() -> Counter[str]:
    """How many tasks of which coroutine there are."""
    return Counter(task.get_coro().__qualname__ for task in asyncio.all_tasks())  # type: ignore[union-attr]


class Held:
    """What is held now, to be compared with later."""

    def __init__(self) -> None:
        gc.collect()
        self._tasks = tasks()
        self._descriptors = descriptors()

    async def no_more(self) -> None:
        """Until nothing more is held than then. Raises AssertionError."""

        def same() -> bool:
            gc.collect()
            return not tasks() - self._tasks and descriptors() <= self._descriptors

        await eventually(same, f"{self._descriptors} descriptors, {self._tasks} only")

"""One timer for all attempts of a destination: all may take as long, so they run out in the order they began.

`with deadlines.limit():` raises TimeoutError when what is in it takes longer, as `asyncio.timeout` does. A
timer for each attempt, set and cancelled, took a tenth of the CPU of a short one.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Deadlines:
    """`seconds` for each."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._running: dict[Limit, None] = {}  # in the order they began
        self._timer: asyncio.TimerHandle | None = None

    def limit(self) -> Limit:
        """A context for the task that enters it, at once and one time."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - coroutines run in tasks
        limit = Limit(self._running, task, loop.time() + self._seconds)
        if self._timer is None:
            self._timer = loop.call_at(limit.at, self._run_out)
        return limit

    def close(self) -> None:
        """Nothing runs out any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _run_out(self) -> None:
        loop = asyncio.get_running_loop()
        for limit in list(self._running):
            if limit.at > loop.time():
                self._timer = loop.call_at(limit.at, self._run_out)
                return
            limit.end()
        self._timer = None


class Limit:
    """What one task does within its time."""

    __slots__ = ("_running", "_task", "_wanted", "at", "over")

    def __init__(self, running: dict[Limit, None], task: asyncio.Task[object], at: float) -> None:
        self.at = at
        self.over = False
        self._running = running
        self._task = task
        self._wanted = task.cancelling()

    def end(self) -> None:
        """The time is over."""
        self.over = True
        del self._running[self]
        self._task.cancel()

    def __enter__(self) -> Self:
        self._running[self] = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.over:
            del self._running[self]
        elif self._task.uncancel() <= self._wanted and kind is asyncio.CancelledError:
            raise TimeoutError from fault  # nobody else wants the task to end

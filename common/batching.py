"""Group commit: what arrives while one call is under way goes with the next one.

Takes single items from many tasks, hands them in batches to one `commit` coroutine, never two at a time,
and gives each task its own result. An item whose task has gone is committed all the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Overflow(Exception):
    """More is waiting than the bound allows."""


class Batcher(Generic[T, R]):
    """Batches that form by themselves.

    `commit` takes a list of items and returns one result per item, an exception among them failing that
    item alone; what it raises fails the whole batch. `most` bounds the weight of a batch, `bound` that of
    what waits.
    """

    def __init__(
        self,
        commit: Callable[[list[T]], Awaitable[Sequence[R | Exception]]],
        *,
        most: int,
        bound: int = 100_000,
        weigh: Callable[[T], int] = lambda _: 1,
        outage: type[Exception] | None = None,
    ) -> None:
        self._commit = commit
        self._most = most
        self._bound = bound
        self._weigh = weigh
        self._outage = outage
        self._waiting: deque[tuple[T, int, asyncio.Future[R]]] = deque()
        self._weight = 0
        self._task: asyncio.Task[None] | None = None

    def submit(self, item: T) -> asyncio.Future[R]:
        """Put the item into the next batch. Raises Overflow when too much is waiting."""
        weight = self._weigh(item)
        if self._weight and self._weight + weight > self._bound:
            raise Overflow
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((item, weight, future))
        self._weight += weight
        if self._task is None:
            self._task = loop.create_task(self._run())
        return future

    async def submit_all(self, items: Iterable[T]) -> list[R]:
        """Put them into the next batches; their results when all are there, or what the first failure raised.

        Raises Overflow when too much is waiting; those that were put in before are committed all the same.
        """
        waiting: list[asyncio.Future[R]] = []
        try:
            waiting.extend(self.submit(item) for item in items)
        except Overflow:
            for future in waiting:
                future.cancel()  # nobody waits for it
            raise
        if len(waiting) == 1:
            return [await waiting[0]]
        results: list[R] = []
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
            results.append(result)
        return results

    async def close(self) -> None:
        """Wait until everything submitted so far is committed."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._commit_next()
        finally:
            self._task = None

    async def _commit_next(self) -> None:
        items, futures = self._next()
        try:
            results = await self._commit(items)
        except Exception as fault:  # noqa: BLE001 - it is handed to every task that waits for this batch
            if self._outage is not None and isinstance(fault, self._outage):
                futures += [future for _, _, future in self._waiting]
                self._waiting.clear()
                self._weight = 0
            results = [fault] * len(futures)
        for future, result in zip(futures, results, strict=True):
            if future.done():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

    def _next(self) -> tuple[list[T], list[asyncio.Future[R]]]:
        items: list[T] = []
        futures: list[asyncio.Future[R]] = []
        weight = 0
        while self._waiting and (not items or weight + self._waiting[0][1] <= self._most):
            item, own, future = self._waiting.popleft()
            items.append(item)
            futures.append(future)
            weight += own
        self._weight -= weight
        return items, futures

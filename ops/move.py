"""Moving dead letters: back to the queue, or away for good. In small batches, each one script call.

Every batch is done or not done, so that what was interrupted can be run again for the rest. Takes what
`letters` yields; returns what came of it per destination. Raises what redis-py raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from msgspec import Struct, structs
from redis.asyncio import Redis

from common import keys
from common.objects import Objects
from common.scripts import Script
from common.stored import Away
from ops.letters import Letter, Wanted, pages

BATCH = 100  # letters in one script call; the server does nothing else meanwhile
BATCH_BYTES = 1024**2

_replay = Script("ops", "replay")
_discard = Script("ops", "discard")


class Moved(Struct):
    """What came of one destination's: `gone` were taken by somebody else meanwhile, `full` stopped it; of
    `left` the object could not be removed."""

    name: str
    done: int = 0
    gone: int = 0
    full: bool = False
    left: int = 0


class Run(Struct, frozen=True):
    """What both ways share: `told` hears how many of each batch were moved, and how many were gone; `stop`
    ends it between two batches."""

    redis: Redis
    namespace: str
    objects: Objects
    wanted: Wanted
    told: Callable[[int, int], None]
    stop: asyncio.Event

    def left(self, moved: Sequence[Moved]) -> int | None:
        """How many more the limit allows, 0 when told to stop; None is without a limit."""
        if self.stop.is_set():
            return 0
        limit = self.wanted.limit
        return None if limit is None else limit - sum(one.done + one.gone for one in moved)


class Pace:
    """`rate` per second on average; None is as fast as it goes."""

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self.batch = BATCH if rate is None else max(1, min(BATCH, int(rate / 10)))
        self._due: float | None = None

    async def wait(self, moved: int, stop: asyncio.Event) -> None:
        """Until the next batch is due, or told to stop."""
        if self.rate is None:
            return
        now = asyncio.get_running_loop().time()
        self._due = max(now, self._due or now) + moved / self.rate
        try:
            async with asyncio.timeout_at(self._due):
                await stop.wait()
        except TimeoutError:
            return


async def replay(run: Run, names: Sequence[str], max_depth: int, pace: Pace, force: bool) -> list[Moved]:
    """Move them back, each destination until its queue is at `max_depth`."""
    moved = [Moved(name) for name in names]
    words = [f"max_depth={max_depth}", *(["force"] if force else [])]
    for one in moved:
        at = keys.Destination(run.namespace, one.name)
        touched = [at.stream, at.dead, at.ledger, at.retry]
        async for ids in _batches(run, one.name, pace.batch, run.left(moved)):
            done, gone, full, _ = await _replay(run.redis, touched, [*words, *ids])
            _book(run, one, done, gone)
            if full:
                one.full = True
                break
            await pace.wait(done, run.stop)
    return moved


async def discard(run: Run, names: Sequence[str]) -> list[Moved]:
    """Remove them for good."""
    moved = [Moved(name) for name in names]
    for one in moved:
        at = keys.Destination(run.namespace, one.name)
        async for ids in _batches(run, one.name, BATCH, run.left(moved)):
            done, _, *objects = await _discard(run.redis, [at.dead, at.ledger, at.objects], ids)
            _book(run, one, done, len(ids) - done)
            await _erase(run, one, [name.decode() for name in objects])
    return moved


async def _erase(run: Run, one: Moved, objects: list[str]) -> None:
    """Remove objects that were listed until now."""
    try:
        await run.objects.delete(one.name, objects)
    except Away:
        one.left += len(objects)  # told at the end; the sweeper finds them


def split(page: Sequence[Letter], most: int) -> Iterator[list[str]]:
    """The ids, in batches of at most `most` letters and about BATCH_BYTES."""
    batch: list[str] = []
    size = 0
    for letter in page:
        if batch and (len(batch) == most or size + letter.size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(letter.id)
        size += letter.size
    if batch:
        yield batch


async def _batches(run: Run, name: str, most: int, limit: int | None) -> AsyncIterator[list[str]]:
    if limit == 0:
        return
    async for page in pages(run.redis, run.namespace, [name], structs.replace(run.wanted, limit=limit)):
        for batch in split(page, most):
            if run.stop.is_set():
                return
            yield batch


def _book(run: Run, one: Moved, done: int, gone: int) -> None:
    one.done += done
    one.gone += gone
    run.told(done, gone)

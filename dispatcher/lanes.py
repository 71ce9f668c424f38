"""The lanes of one process, one per destination of the configuration: made, replaced and ended while it runs.

Takes settings, at the start and with each reload; all lanes that they need can be made, or none is taken
(Refused). A lane that is not wanted any more, or not as it is, takes nothing from then on, hands back what
was not sent, waits for what was sent up to `drain_timeout`, and leaves the group. Only then its successor
begins: one consumer never has two owners in a process, and `max_in_flight` holds.
"""

from __future__ import annotations

import asyncio

from msgspec import structs
from redis import exceptions as errors

from common.log import Log
from common.reload import Refused
from common.settings import Destination, Settings
from dispatcher.destinations.base import Unusable
from dispatcher.lane import Lane
from dispatcher.reclaim import reap
from dispatcher.replica import Replica
from dispatcher.take import make_group
from dispatcher.tend import Tender

log = Log("dispatcher")


class _Over(Exception):
    """Nothing is left to do."""


class Life:
    """A lane with an order to stop and tasks of its own, so that it can end while others go on."""

    def __init__(self, shared: Replica, settings: Settings, destination: Destination) -> None:
        self.terms = terms(settings, destination)
        self.stopping = asyncio.Event()
        self.begun = asyncio.Event()  # it takes, or will never
        self._tasks = asyncio.TaskGroup()
        self._drain_timeout = settings.dispatcher.drain_timeout
        self._replica = structs.replace(shared, settings=settings, stopping=self.stopping, tasks=self._tasks)
        self.lane = Lane(self._replica, destination)

    async def run(self, before: asyncio.Task[None] | None) -> None:
        """From the end of the lane `before` until told to stop, and then until all is settled or left."""
        quarantine, lane = self._replica.quarantine, self.lane
        if before is not None:
            await asyncio.wait([before])
        quarantine.wards = [*quarantine.wards, lane]
        try:
            if not self.stopping.is_set():
                await self._make_group()
                await self._work()
        finally:
            self.begun.set()
            await lane.close()
            quarantine.wards = [ward for ward in quarantine.wards if ward is not lane]
        await self._leave()

    async def _make_group(self) -> None:
        try:
            await make_group(self._replica.redis, self.lane.keys)
        except errors.RedisError as fault:
            await self.lane.trouble.wait_out(fault)  # the lane makes it again when it is missed

    async def _work(self) -> None:
        lane = self.lane
        try:
            async with self._tasks as tasks:
                tasks.create_task(lane.settler.run())
                tasks.create_task(Tender(lane).run())
                taking = tasks.create_task(lane.run())
                self.begun.set()
                await self.stopping.wait()
                await self._drain(taking)
                raise _Over
        except* _Over:
            pass  # and every task that was left is cancelled

    async def _drain(self, taking: asyncio.Task[None]) -> None:
        lane = self.lane
        try:
            async with asyncio.timeout(self._drain_timeout):
                await asyncio.gather(taking, lane.idle())
        except TimeoutError:
            log.warning("drain_incomplete", destination=lane.name, left=len(lane.in_work))

    async def _leave(self) -> None:
        lane, replica = self.lane, self._replica
        try:
            await reap(replica.redis, lane.keys, silence=0, only=replica.consumer)
        except errors.RedisError as fault:
            log.info("left_without_goodbye", destination=lane.name, error=fault)  # others will reap it


class Lanes:
    """All of them. `shared` is what they share; their tasks are made in its group: a bug ends the process."""

    def __init__(self, shared: Replica) -> None:
        self._shared = shared
        self._lives: dict[str, Life] = {}
        self._last: dict[str, asyncio.Task[None]] = {}  # by name; it ends after those before it

    def __len__(self) -> int:
        """How many there are, with those that have not left yet."""
        return len(self._last)

    @property
    def in_work(self) -> int:
        """Deliveries under way in all of them."""
        return sum(len(life.lane.in_work) for life in self._lives.values())

    def lane(self, name: str) -> Lane | None:
        """The one of that destination, when there is one."""
        life = self._lives.get(name)
        return None if life is None else life.lane

    async def make(self, settings: Settings) -> dict[str, Life]:
        """Lanes that there are not yet, or not like that. Raises Refused: not all of them can be made."""
        made: dict[str, Life] = {}
        try:
            for destination in settings.destinations:
                there = self._lives.get(destination.name)
                if there is None or there.terms != terms(settings, destination):
                    self._shared.metrics.add(destination.name)
                    made[destination.name] = Life(self._shared, settings, destination)
        except Exception as fault:
            for life in made.values():
                await life.lane.close()
            if isinstance(fault, Unusable):
                raise Refused(str(fault)) from fault
            raise
        return made

    def use(self, settings: Settings, made: dict[str, Life]) -> None:
        """From now on these destinations; `made` is what `make` has made for them."""
        wanted = {destination.name for destination in settings.destinations}
        for name in [name for name in self._lives if name in made or name not in wanted]:
            self._lives.pop(name).stopping.set()
        for name, life in made.items():
            self._lives[name] = life
            self._start(name, life)

    async def begun(self) -> None:
        """Until every lane takes."""
        for life in list(self._lives.values()):
            await life.begun.wait()

    async def drain(self) -> None:
        """Stop all of them, and wait until they have left."""
        for life in self._lives.values():
            life.stopping.set()
        await asyncio.gather(*self._last.values())

    def _start(self, name: str, life: Life) -> None:
        task = self._shared.tasks.create_task(life.run(self._last.get(name)))
        self._last[name] = task
        task.add_done_callback(lambda ended: self._forget(name, ended))

    def _forget(self, name: str, ended: asyncio.Task[None]) -> None:
        if self._last.get(name) is ended:
            del self._last[name]


def terms(settings: Settings, destination: Destination) -> tuple[object, ...]:
    """What a lane is made of: another one is needed when any of it changes."""
    follow_ups = [other for other in settings.destinations if other.name in destination.follow_ups]
    limit = settings.ingest.inline_limit if follow_ups else None
    sections = settings.queue, settings.dedupe, settings.dispatcher, settings.objects
    return destination, follow_ups, limit, *sections

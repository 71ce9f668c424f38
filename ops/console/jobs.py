"""Replays and discards of all that match, and retiring: in the background, paced, to be stopped at any time.

A job moves batches as the commands do (`ops/move.py`), each one script, so that what was stopped has done
whole batches and can be started again for the rest. It takes only what was there when it began. Redis that
is away is waited for. Jobs live in this process, the last ones are kept to be looked at.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count as numbers

from msgspec import Struct, structs
from redis import exceptions as errors
from redis.asyncio import Redis

from common.http import Problem
from common.log import Log
from common.objects import Objects
from common.service import either
from common.settings import Settings
from common.trouble import Kind, kind_of
from ops import move
from ops.console.board import Board, number
from ops.console.search import Search
from ops.retire import Retired, move_all

AT_ONCE = 4
KEPT = 20  # that are over
PAUSE = 2.0  # seconds between two tries when Redis is away
DONE = {"replay": "replayed", "discard": "discarded", "retire": "moved to its dead letters"}

log = Log("console")


class Task(Struct, frozen=True):
    """What is to be done: `search` has its upper bound of time; `total` dead letters are looked at, or so."""

    verb: str
    names: tuple[str, ...]
    who: str
    search: Search
    rate: float | None = None
    force: bool = False
    total: int | None = None


class Job:
    """One of them, and how far it is."""

    def __init__(self, number: int, task: Task) -> None:
        self.id = number
        self.task = task
        self.state = "running"  # waiting, stopped, done, broken
        self.done = 0
        self.gone = 0  # somebody else moved them meanwhile
        self.full = False  # what it moves to has no room
        self.remarks: list[str] = []
        self.began = time.time()
        self.stop = asyncio.Event()

    @property
    def over(self) -> bool:
        """Whether nothing more will be done."""
        return self.state in ("stopped", "done", "broken")

    @property
    def looked(self) -> int | None:
        """How many of `total` were looked at; None when that tells nothing."""
        total = self.task.total
        if total is None or self.state == "done":
            return total
        return min(total, max(self.task.search.looks.count, self.done + self.gone))

    @property
    def told(self) -> str:
        """How far it is, in a sentence."""
        done = f"{number(self.done)} {DONE[self.task.verb]}"
        of = (
            ""
            if self.looked is None
            else f", looked at {number(self.looked)} of {number(self.task.total or 0)}"
        )
        return "; ".join([f"{self.state}: {done}{of}", *self.remarks])

    def add(self, moved: int, gone: int = 0) -> None:
        """So many more."""
        self.state = "running"
        self.done += moved
        self.gone += gone


class Jobs:
    """All of one process."""

    def __init__(
        self, redis: Redis, troubled: Callable[[Kind], None], changed: Callable[[int], None]
    ) -> None:
        self._redis = redis
        self._troubled = troubled
        self._changed = changed
        self._ids = numbers(1)
        self._running: dict[int, asyncio.Task[None]] = {}
        self.all: list[Job] = []

    def start(self, task: Task, settings: Settings) -> Job:
        """Begin; the job is in `all` from now on. Raises Problem (409)."""
        if len(self._running) >= AT_ONCE:
            raise Problem(409, f"{AT_ONCE} jobs are under way already: wait for one, or stop one")
        job = Job(next(self._ids), task)
        over = [one for one in self.all if one.over]
        self.all = [one for one in self.all if one not in over[: max(0, len(over) - KEPT)]] + [job]
        self._running[job.id] = asyncio.create_task(self._run(job, settings))
        self._changed(len(self._running))
        return job

    def of(self, named: str) -> Job | None:
        """The job of that number."""
        return next((job for job in self.all if str(job.id) == named), None)

    def board(self) -> Board:
        """What pages show of them."""
        told = {"all/jobs": str(len(self._running))}
        for job in self.all:
            told[f"job-{job.id}/told"] = job.told
            told[f"job-{job.id}/state"] = job.state
            told[f"job-{job.id}/value"] = "" if job.looked is None else str(job.looked)
        return told

    async def close(self) -> None:
        """Stop all of them, each after the batch that is under way."""
        for job in self.all:
            job.stop.set()
        await asyncio.gather(*self._running.values())

    async def _run(self, job: Job, settings: Settings) -> None:
        work = self._retired if job.task.verb == "retire" else self._moved
        try:
            await self._until_done(job, lambda: work(job, settings))
        except Exception as bug:  # noqa: BLE001 - told, and ends this job alone
            job.state = "broken"
            log.error("console_job_broke", fault=bug, job=job.id)
        finally:
            del self._running[job.id]
            self._changed(len(self._running))
            task = job.task
            log.warning(
                "console_job_over",
                job=job.id,
                user=task.who,
                action=task.verb,
                destination=" ".join(task.names),
                state=job.state,
                count=job.done,
            )

    async def _until_done(self, job: Job, work: Callable[[], Awaitable[None]]) -> None:
        while not job.stop.is_set():
            try:
                await work()
            except errors.RedisError as fault:
                self._troubled(kind_of(fault))
                job.state = "waiting"
                await either(job.stop, PAUSE)
            else:
                job.state = "stopped" if job.stop.is_set() or job.full else "done"
                return
        job.state = "stopped"

    async def _moved(self, job: Job, settings: Settings) -> None:
        """Replay or discard, from wherever it stands."""
        task, namespace = job.task, settings.redis.namespace
        objects = Objects(settings.objects.url, namespace)
        run = move.Run(self._redis, namespace, objects, task.search, job.add, job.stop)
        if task.verb == "replay":
            pace = move.Pace(task.rate)
            moved = await move.replay(run, task.names, settings.queue.max_depth, pace, task.force)
        else:
            moved = await move.discard(run, task.names)
        job.full = any(one.full for one in moved)
        job.remarks = list(_remarks(job.gone, moved, settings))

    async def _retired(self, job: Job, settings: Settings) -> None:
        for name in job.task.names:
            done = Retired()
            await move_all(self._redis, settings, name, done, job.add, job.stop)
            if done.left:
                job.remarks = [
                    f"{number(done.left)} are in work at replicas that still know it: run it again"
                ]
            job.full = done.full
            if done.full:
                job.remarks = [f"its dead letters are at their cap ({number(settings.queue.max_dead)})"]


def bounded(search: Search, now: int) -> Search:
    """Only what was there at `now`, the server's time in ms."""
    return search if search.until is not None and search.until <= now else structs.replace(search, until=now)


def _remarks(gone: int, moved: Sequence[move.Moved], settings: Settings) -> list[str]:
    told = []
    if gone:
        told.append(f"{number(gone)} were moved by somebody else meanwhile")
    if any(one.left for one in moved):
        told.append("objects that could not be removed now are removed within two hours")
    cap = number(settings.queue.max_depth)
    told += [
        f"{one.name}: its queue is full ({cap}), start it again when it has drained"
        for one in moved
        if one.full
    ]
    return told

"""Several ingest processes on one machine: forks them, starts again what dies, and ends with them.

Takes what every one of them has to do; returns the exit code. All listen on one address by themselves
(SO_REUSEPORT), so that one that is gone gets no connections; this process keeps the address and does nothing
else. Being copies of it, they agree on what can't be changed while they run, however late they are started.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn, TypeAlias

from msgspec import Struct

from common.follow import follow
from common.log import Log
from ingest.metrics import Metrics

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
PATIENCE = 15.0  # seconds for all to end: GRACE of `serve`, and some for letting go of Redis
STEADY = 10.0  # seconds of life after which a death is no sign of an illness
LOOK = 1.0  # seconds between two looks at whether each makes progress
STUCK = 30  # looks in a row without any; counted in looks, since a whole machine may stand still
FIRST, LONGEST = 0.1, 30.0  # pause before a start; doubled by each death that was not a STEADY life ago
CANNOT = 1  # exit code of one that has said why it can't work
BROKEN = 70  # exit code of one that met a bug

Work: TypeAlias = Callable[[int, bool], int]  # which one, and whether another was there before; exit code

log = Log("ingest")


class _Worker(Struct):
    """One of them; `pid` 0: it is to be started at `due`."""

    number: int
    pid: int = 0
    since: float = 0.0
    due: float = 0.0
    lives: int = 0
    pause: float = FIRST
    beats: float = -1.0
    missed: int = 0


class Supervisor:
    """Keeps `count` processes running `work` until it is told to stop."""

    def __init__(self, work: Work, count: int, metrics: Metrics, look: float = LOOK) -> None:
        self._work = work
        self._workers = [_Worker(number) for number in range(count)]
        self._metrics = metrics
        self._every, self._next = look, time.monotonic() + look
        self._code = 0
        self._deadline: float | None = None  # of the end, once it has begun
        self._told, self._tell = os.pipe()  # numbers of signals

    def run(self) -> int:
        """Until all have ended."""
        os.set_blocking(self._told, False)
        os.set_blocking(self._tell, False)
        signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)
        for number in HANDLED:
            signal.signal(number, lambda *_: None)  # select returns: that is all
        while self._deadline is None or any(worker.pid for worker in self._workers):
            self._start_due()
            self._hear(self._rest())
            self._reap()
            self._look()
        return self._code

    def _start_due(self) -> None:
        if self._deadline is not None:
            if time.monotonic() > self._deadline:
                self._code = 1
                self._send(signal.SIGKILL)
            return
        for worker in self._workers:
            if not worker.pid and worker.due <= time.monotonic():
                self._start(worker)

    def _rest(self) -> float:
        """Seconds until something is to be done unasked."""
        now = time.monotonic()
        if self._deadline is not None:
            return max(0.0, self._deadline - now) + 0.01
        due = [worker.due for worker in self._workers if not worker.pid]
        return max(0.0, min([self._next, *due]) - now)

    def _look(self) -> None:
        """End those whose event loops stand still."""
        if self._deadline is not None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every
        for worker, beats in zip(self._workers, self._metrics.beats(), strict=False):
            worker.missed = worker.missed + 1 if worker.pid and worker.beats == beats else 0
            worker.beats = beats
            if worker.missed >= STUCK:
                worker.missed = 0
                log.error("worker_stuck", worker=worker.number)
                os.kill(worker.pid, signal.SIGKILL)

    def _hear(self, patience: float) -> None:
        """Wait for signals, and pass them on."""
        select.select([self._told], [], [], patience)
        with suppress(BlockingIOError):
            told = set(os.read(self._told, 4096))
            if signal.SIGHUP in told:
                self._send(signal.SIGHUP)
            if told & {signal.SIGTERM, signal.SIGINT}:
                self._stop()

    def _stop(self) -> None:
        if self._deadline is None:
            self._deadline = time.monotonic() + PATIENCE
            self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        for worker in self._workers:
            if worker.pid:
                os.kill(worker.pid, number)  # it is there: nobody has reaped it

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:  # there is none at all
                return
            if not pid:
                return
            for worker in self._workers:
                if worker.pid == pid:
                    self._ended(worker, os.waitstatus_to_exitcode(status))

    def _ended(self, worker: _Worker, code: int) -> None:
        worker.pid = 0
        self._count()
        if self._deadline is not None:
            self._code = self._code or max(code, 0)
            return
        if code == CANNOT and worker.lives == 1:  # nothing has worked so far
            self._code = CANNOT
            self._stop()
            return
        self._metrics.worker_deaths.add()
        self._later(worker, f"exit code {code}" if code >= 0 else signal.Signals(-code).name)

    def _later(self, worker: _Worker, how: str) -> None:
        now = time.monotonic()
        worker.pause = FIRST if now - worker.since > STEADY else min(LONGEST, worker.pause * 2)
        worker.due = now + worker.pause
        log.error("worker_died", worker=worker.number, how=how, again_in=round(worker.pause, 3))

    def _count(self) -> None:
        self._metrics.workers.set(sum(worker.pid > 0 for worker in self._workers))

    def _start(self, worker: _Worker) -> None:
        parent = os.getpid()
        worker.lives += 1
        worker.since = time.monotonic()
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)  # none gets to the wrong one of the two
        try:
            worker.pid = os.fork()
            if not worker.pid:
                self._live(worker, parent)
        except OSError as fault:  # no memory, or no more processes
            self._later(worker, f"not started: {fault.strerror}")
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        self._count()

    def _live(self, worker: _Worker, parent: int) -> NoReturn:
        """The child's whole life."""
        code = BROKEN
        try:
            signal.set_wakeup_fd(-1)
            for number in HANDLED:
                signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else signal.SIG_DFL)
            os.close(self._told)
            os.close(self._tell)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
            follow(parent)
            code = self._work(worker.number, worker.lives > 1)
        except Exception as bug:  # noqa: BLE001 - it must not get to the code of the parent below on the stack
            log.error("worker_broke", fault=bug, worker=worker.number)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

"""`redispatch agent`: posts this machine's disk, memory and load as readings, again and again.

What can't be posted waits, up to a bound, beyond which the oldest are dropped and counted. 429, 503 and lost
connections are tried again with capped backoff and full jitter, Retry-After is kept to; what ingest refuses
is dropped, since it would be refused again.
"""

from __future__ import annotations

import json
import random
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import click

from common.units import Duration
from ops.options import DurationType
from ops.post import Answer, Target, Unreachable, target_options

Reading: TypeAlias = dict[str, Any]

MOST = 500  # readings in one request
BASE, CAP = 1.0, 60.0  # seconds of backoff: 1, 2, 4, ... 60, each multiplied by a number between 0 and 1
LONGEST_WAIT = 3600.0  # seconds that a Retry-After is believed
ONCE = 60.0  # seconds that --once tries


class Agent:
    """Measures and posts; `say` is told what a person may want to know. Times are of one monotonic clock."""

    def __init__(
        self,
        measure: Callable[[], Sequence[Reading]],
        post: Callable[[bytes], Answer],
        say: Callable[[str], None],
        *,
        interval: float,
        keep: int,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._measure, self._post, self._say = measure, post, say
        self._interval = interval
        self._keep = keep
        self._chance = chance
        self._due = float("-inf")  # the next measurement
        self._again = float("-inf")  # the next request
        self._failures = 0
        self.waiting: deque[Reading] = deque()
        self.dropped = 0

    def step(self, now: float, *, measure: bool = True) -> float:
        """Do what is due; returns when the next thing will be."""
        if measure and now >= self._due:
            late = now - self._due > self._interval  # also the first time
            self._due = now + self._interval if late else self._due + self._interval
            self._gather()
        while self.waiting and now >= self._again and self._send(now):
            pass
        return min(self._due, self._again) if self.waiting else self._due

    def _gather(self) -> None:
        self.waiting += self._measure()
        while len(self.waiting) > self._keep:
            self.waiting.popleft()
            self.dropped += 1

    def _send(self, now: float) -> bool:
        """One request; whether to go on with the next."""
        batch = [self.waiting[n] for n in range(min(MOST, len(self.waiting)))]
        try:
            answer = self._post(json.dumps(batch).encode())
        except Unreachable as fault:
            return self._wait(now, f"can't be reached ({fault})", None)
        if answer.status in (401, 403, 408, 429) or answer.status >= 500:
            return self._wait(now, f"answers {answer.status}: {answer.text[:300]}", answer.retry_after)
        for _ in batch:
            self.waiting.popleft()
        if answer.status != 201:
            self._say(f"ingest answers {answer.status}: {answer.text[:300]}")
        if self._failures:
            self._say(f"ingest takes readings again; {self.dropped} were dropped so far")
            self._failures = 0
        return True

    def _wait(self, now: float, why: str, asked: float | None) -> bool:
        self._failures += 1
        backoff = self._chance() * min(CAP, BASE * 2.0 ** min(self._failures - 1, 30))
        self._again = now + min(asked or 0.0, LONGEST_WAIT) + backoff
        if self._failures == 1:
            self._say(f"ingest {why}; readings wait here, the latest {self._keep}")
        return False


def measured(host: str, disks: Sequence[str], say: Callable[[str], None]) -> Callable[[], list[Reading]]:
    """Measures this machine; a disk that is not there (any more) is left out, and told of once."""
    import psutil

    missing: set[str] = set()

    def readings() -> Iterator[Reading]:
        for path in disks:
            try:
                used = psutil.disk_usage(path).percent
            except OSError as fault:
                if path not in missing:
                    say(f"{path}: {fault.strerror}")
                missing.add(path)
                continue
            missing.discard(path)
            yield {"metric": "disk", "percent": used, "labels": {"path": path}}
        yield {"metric": "memory", "percent": psutil.virtual_memory().percent}
        yield {"metric": "load", "value": round(psutil.getloadavg()[0], 2)}

    def measure() -> list[Reading]:
        now = time.time_ns() // 1_000_000
        return [{"host": host, "timestamp": now, **reading} for reading in readings()]

    return measure


@click.command()
@click.option("--interval", type=DurationType(), default="30s", show_default=True, help="Between two looks.")
@click.option("--disk", "disks", metavar="PATH", multiple=True, default=["/"], help="Several; / when none.")
@click.option("--host", default=socket.gethostname, help="What it is called; this machine's name by default.")
@click.option("--keep", type=click.IntRange(1), default=10_000, show_default=True, help="How many may wait.")
@click.option("--once", is_flag=True, help="Measure once, post, and end; for a timer.")
@target_options
def agent(
    config: str | None,
    url: str | None,
    token: str | None,
    ca: str | None,
    cert: str | None,
    interval: Duration,
    disks: Sequence[str],
    host: str,
    keep: int,
    once: bool,
) -> None:
    """Post this machine's disk, memory and load as readings.

    They become alerts by the rules of ingest's configuration: metric disk in percent, with the label path,
    memory in percent, load as the average of the last minute.
    """
    target = Target(config, url, token, ca, cert)
    if interval <= 0:
        raise click.BadParameter("has to be above 0", param_hint="--interval")
    try:
        measure = measured(host, disks, _say)
    except ModuleNotFoundError as missing:
        raise click.ClickException("agent needs psutil: pip install 'redispatch[agent]'") from missing
    if not measure_disks(measure):
        raise click.BadParameter("none of them is there", param_hint="--disk")
    made = Agent(measure, lambda body: target.post("/v1/readings", body), _say, interval=interval, keep=keep)
    sys.exit(_once(made) if once else _until_told(made, target.url, interval))


def measure_disks(measure: Callable[[], list[Reading]]) -> bool:
    """Whether at least one disk can be measured."""
    return any(reading["metric"] == "disk" for reading in measure())


def _until_told(made: Agent, url: str, interval: Duration) -> int:
    told = threading.Lock()  # free once a signal came; an Event's own lock may be held where that interrupts
    told.acquire()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.release() if told.locked() else None)
    _say(f"readings go to {url} every {interval}")
    while not told.acquire(timeout=max(0.0, made.step(time.monotonic()) - time.monotonic())):
        pass
    if made.waiting:
        _say(f"{len(made.waiting)} readings were not sent")
    return 0


def _once(made: Agent) -> int:
    end = time.monotonic() + ONCE
    due = made.step(time.monotonic())
    while made.waiting and due < end:
        time.sleep(max(0.0, due - time.monotonic()))
        due = made.step(time.monotonic(), measure=False)
    if made.waiting:
        _say(f"{len(made.waiting)} readings were not sent")
    return 1 if made.waiting else 0


def _say(text: str) -> None:
    click.echo(text, err=True)

"""The supervisor with workers that are made up: one stands still, one has a bug, one does not obey."""

from __future__ import annotations

import signal
import sys

from tests.support.processes import Process, Processes

SCRIPT = """
import os, signal, sys, time
from common import log
from common.shared import Table
from ingest import supervise
from ingest.metrics import Metrics

log.setup("ingest")
supervise.PATIENCE = {patience}
table = Table(2)

def work(number, again):
    if again:
        print("again", flush=True)
        signal.pause()
    {body}

sys.exit(supervise.Supervisor(work, 1, Metrics([], table.row(1)), look={look}).run())
"""


def script(body: str, patience: float = 60, look: float = 1) -> str:
    """Which waits so many seconds for the end of all, and for a sign of life 30 times as long as a `look`."""
    return SCRIPT.format(body=body, patience=patience, look=look)


async def supervised(processes: Processes, body: str, **how: float) -> Process:
    return await processes.start(sys.executable, "-c", script(body, **how))


async def test_one_that_stands_still_is_killed_and_started_again(processes: Processes) -> None:
    process = await supervised(
        processes, 'Metrics([], table.row(0)).beat(); print("up"); time.sleep(60)', look=0.02
    )
    await process.wait_line("worker_stuck")
    await process.wait_line('"how":"SIGKILL"')
    await process.wait_line("again")


async def test_a_bug_is_told_and_ends_only_the_worker(processes: Processes) -> None:
    process = await supervised(processes, 'raise RuntimeError("oh")')
    assert "RuntimeError: oh" in await process.wait_line("worker_broke")
    await process.wait_line('"how":"exit code 70"')
    await process.wait_line("again")
    assert await process.stop() == 0


async def test_one_that_says_it_cannot_work_ends_all(processes: Processes) -> None:
    process = await supervised(processes, "return 1")
    assert await process.wait_exit() == 1
    assert process.err == []


async def test_one_that_does_not_obey_is_killed_in_the_end(processes: Processes) -> None:
    body = 'signal.signal(signal.SIGTERM, signal.SIG_IGN); print("deaf", flush=True); time.sleep(60)'
    process = await supervised(processes, body, patience=0.5)
    await process.wait_line("deaf")
    process.signal(signal.SIGTERM)
    assert await process.wait_exit() == 1


async def test_a_start_that_the_system_refuses_is_tried_again(processes: Processes) -> None:
    """The first fork fails as it does without memory."""
    refuse = "fork, os.fork = os.fork, lambda: refuse()\n"
    refuse += "def refuse(): os.fork = fork; raise OSError(12, 'Cannot allocate memory')\n"
    program = script('print("up", flush=True); signal.pause()').replace("sys.exit(", refuse + "sys.exit(")
    process = await processes.start(sys.executable, "-c", program)
    assert "Cannot allocate memory" in await process.wait_line("worker_died")
    await process.wait_line("again")

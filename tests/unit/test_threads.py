"""Threads for what blocks: bounded, kept by who does not come back, left behind at the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from dispatcher.destinations.threads import Threads

DEADLINE = 30.0


async def test_what_a_function_returns_and_raises() -> None:
    threads = Threads("t", 1)
    assert await threads.call(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await threads.call(lambda: 1 // 0)
    assert threads.busy == 0


async def test_a_thread_that_does_not_come_back_keeps_its_place() -> None:
    threads, release = Threads("t", 2), threading.Event()
    stuck = asyncio.create_task(threads.call(release.wait))
    assert await threads.call(lambda: 1) == 1
    stuck.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stuck
    assert threads.busy == 1
    other = asyncio.create_task(threads.call(release.wait))
    third = asyncio.create_task(threads.call(lambda: 3))
    await asyncio.sleep(0)
    assert threads.busy == 2
    assert not third.done()
    release.set()
    async with asyncio.timeout(DEADLINE):
        assert await third == 3
        assert await other is True
        both = [threads.call(lambda: 4), threads.call(lambda: 5)]  # needs what nobody waits for to have ended
        assert await asyncio.gather(*both) == [4, 5]


async def test_a_waiter_that_gives_up_takes_no_place() -> None:
    threads, release = Threads("t", 1), threading.Event()
    first = asyncio.create_task(threads.call(release.wait))
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await threads.call(lambda: 1)
    release.set()
    async with asyncio.timeout(DEADLINE):
        assert await first
        assert await threads.call(lambda: 2) == 2


async def test_no_more_threads_leaves_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads("t", 1)

    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        with pytest.raises(RuntimeError, match="new thread"):
            await threads.call(lambda: 1)
    assert await threads.call(lambda: 2) == 2


def test_a_process_does_not_wait_for_them_at_its_end() -> None:
    code = """
import asyncio, threading
from dispatcher.destinations.threads import Threads

async def main():
    threads = Threads("t", 1)
    try:
        async with asyncio.timeout(0.01):
            await threads.call(threading.Event().wait)
    except TimeoutError:
        print("left behind", threads.busy)

asyncio.run(main())
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "left behind 1\n", "")

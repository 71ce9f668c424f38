"""One timer for many attempts: each ends in time, none before, and a cancellation from outside stays one."""

from __future__ import annotations

import asyncio

import pytest

from dispatcher.destinations.deadline import Deadlines


async def forever(deadlines: Deadlines) -> None:
    with deadlines.limit():
        await asyncio.Event().wait()


async def test_each_runs_out_and_only_when_its_time_is_over() -> None:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(0.05)
    ended: list[float] = []

    async def attempt(after: int) -> float:
        for _ in range(after):
            await asyncio.sleep(0.01)
        started = loop.time()
        with pytest.raises(TimeoutError):
            await forever(deadlines)
        ended.append(after)
        return loop.time() - started

    took = await asyncio.gather(*(attempt(number) for number in (3, 0, 1, 2)))
    assert ended == [0, 1, 2, 3]
    assert min(took) >= 0.05 - 0.001  # a loop's clock has grains


async def test_what_ends_in_time_is_left_alone() -> None:
    deadlines = Deadlines(0.02)
    with deadlines.limit() as limit:
        await asyncio.sleep(0)
    with pytest.raises(ValueError, match="mine"), deadlines.limit():
        raise ValueError("mine")
    with pytest.raises(TimeoutError):  # the timer, which was for the first, is there for this one too
        await forever(deadlines)
    assert not limit.over
    assert not deadlines._running


async def test_a_cancellation_from_outside_stays_one() -> None:
    deadlines = Deadlines(60)
    task = asyncio.create_task(forever(deadlines))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not deadlines._running
    deadlines.close()


async def test_a_cancellation_wins_over_a_time_that_ends_with_it() -> None:
    deadlines = Deadlines(60)
    task = asyncio.create_task(forever(deadlines))
    await asyncio.sleep(0)
    [limit] = deadlines._running
    limit.end()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    deadlines.close()


async def test_a_task_goes_on_after_its_time_ran_out() -> None:
    deadlines = Deadlines(0.01)

    async def twice() -> int:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await forever(deadlines)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert await asyncio.create_task(twice()) == 0

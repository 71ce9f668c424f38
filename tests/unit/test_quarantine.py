"""A suspect is alone, one at a time, and work is normal in between."""

from __future__ import annotations

import asyncio

from dispatcher.quarantine import Quarantine


class Clock:
    """Moves when told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Ward:
    """A lane that is idle when told."""

    def __init__(self) -> None:
        self.done = asyncio.Event()

    async def idle(self) -> None:
        await self.done.wait()


async def test_it_waits_for_every_lane_and_then_rests_as_long() -> None:
    clock, wards, delivered = Clock(), [Ward(), Ward()], asyncio.Event()
    quarantine = Quarantine(clock)
    quarantine.wards.extend(wards)

    async def deliver() -> None:
        clock.now += 5
        delivered.set()

    isolating = asyncio.create_task(quarantine.isolate(deliver))
    for ward in wards:
        await asyncio.sleep(0)
        assert not quarantine.open.is_set()
        assert not delivered.is_set()
        ward.done.set()
    await isolating
    assert delivered.is_set()
    assert quarantine.open.is_set()
    clock.now += 4
    assert not quarantine.ready()
    clock.now += 1
    assert quarantine.ready()
    await quarantine.rest()


async def test_two_suspects_are_never_in_work_together() -> None:
    quarantine, first, delivered = Quarantine(), asyncio.Event(), []

    async def deliver_first() -> None:
        delivered.append("first")
        await first.wait()

    async def deliver_second() -> None:
        delivered.append("second")

    assert quarantine.ready()  # as two lanes ask, before either begins
    isolating = asyncio.create_task(quarantine.isolate(deliver_first))
    await asyncio.sleep(0)
    await quarantine.isolate(deliver_second)
    assert delivered == ["first"]
    assert not quarantine.open.is_set()
    first.set()
    await isolating
    assert quarantine.open.is_set()

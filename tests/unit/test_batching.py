"""Group commit: who goes with whom, and what each is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from common.batching import Batcher, Overflow


class Away(Exception):
    """An outage."""


class Store:
    """Commits when told to; `batches` is what came together."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.fault: Exception | None = None

    async def commit(self, items: list[int]) -> Sequence[str | Exception]:
        self.batches.append(items)
        self.begun.set()
        await self.go_on.wait()
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault
        return [ValueError(item) if item < 0 else f"stored {item}" for item in items]


async def test_what_arrives_meanwhile_goes_with_the_next() -> None:
    store = Store()
    batcher: Batcher[int, str] = Batcher(store.commit, most=10)
    first = batcher.submit(1)
    await store.begun.wait()
    later = [batcher.submit(item) for item in (2, 3, 4)]
    store.go_on.set()
    assert await asyncio.gather(first, *later) == ["stored 1", "stored 2", "stored 3", "stored 4"]
    assert store.batches == [[1], [2, 3, 4]]


async def test_a_batch_has_its_weight_and_one_item_at_least() -> None:
    store = Store()
    store.go_on.set()
    batcher: Batcher[int, str] = Batcher(store.commit, most=5, weigh=lambda item: item)
    await batcher.submit_all([2, 3, 1, 9, 1])
    assert store.batches == [[2, 3], [1], [9], [1]]


async def test_one_items_fault_is_its_own() -> None:
    store = Store()
    store.go_on.set()
    batcher: Batcher[int, str] = Batcher(store.commit, most=10)
    told = await asyncio.gather(batcher.submit(1), batcher.submit(-1), return_exceptions=True)
    assert told[0] == "stored 1"
    assert isinstance(told[1], ValueError)


@pytest.mark.parametrize(("fault", "waiting_fails"), [(Away(), True), (KeyError(), False)])
async def test_an_outage_fails_what_waits_a_bug_does_not(fault: Exception, waiting_fails: bool) -> None:
    store = Store()
    batcher: Batcher[int, str] = Batcher(store.commit, most=10, outage=Away)
    first = batcher.submit(1)
    await store.begun.wait()
    later = batcher.submit(2)
    store.fault = fault
    store.go_on.set()
    with pytest.raises(type(fault)):
        await first
    if waiting_fails:
        with pytest.raises(Away):
            await later
    else:
        assert await later == "stored 2"


async def test_who_has_gone_is_committed_all_the_same() -> None:
    store = Store()
    batcher: Batcher[int, str] = Batcher(store.commit, most=10)
    batcher.submit(1).cancel()
    store.go_on.set()
    await batcher.close()
    assert store.batches == [[1]]


async def test_too_much_is_refused() -> None:
    store = Store()
    batcher: Batcher[int, str] = Batcher(store.commit, most=1, bound=2)
    waiting = [batcher.submit(1), batcher.submit(2)]
    with pytest.raises(Overflow):
        batcher.submit(3)
    store.go_on.set()
    assert await asyncio.gather(*waiting) == ["stored 1", "stored 2"]

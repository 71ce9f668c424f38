"""Groups of deliveries: full, over their time, flushed, taken back."""

from __future__ import annotations

import asyncio

from common.settings import Batch
from common.units import Duration
from dispatcher.entry import Entry
from dispatcher.gather import Gatherer, Member, group_of
from tests.support.deliveries import alert, delivery

LONG = Duration(3600)


class Sent(list[list[str]]):
    """What a gatherer has sent, by key; `some` is set with each."""

    def __init__(self) -> None:
        self.some = asyncio.Event()

    def __call__(self, members: list[Member]) -> None:
        self.append([delivery.key for _, delivery in members])
        self.some.set()


def add(gatherer: Gatherer, *names: str) -> None:
    for name in names:
        gatherer.add(Entry("1-1", {}), delivery(name, of=alert(name=name[0])))


async def test_a_full_group_goes_at_once_and_others_wait() -> None:
    sent = Sent()
    gatherer = Gatherer(Batch(max=2, wait=LONG, by=["name"]), sent)
    add(gatherer, "a1", "b1", "a2", "c1", "a3")
    assert sent == [["a1", "a2"]]
    gatherer.flush()
    assert sent == [["a1", "a2"], ["b1"], ["c1"], ["a3"]]
    gatherer.flush()
    assert len(sent) == 4


async def test_the_first_of_a_group_waits_no_longer_than_told() -> None:
    sent = Sent()
    add(Gatherer(Batch(max=9, wait=Duration(0.01)), sent), "a", "b")
    assert sent == []
    async with asyncio.timeout(30):
        await sent.some.wait()
    assert sent == [["a", "b"]]


async def test_what_is_taken_back_is_not_sent() -> None:
    sent = Sent()
    gatherer = Gatherer(Batch(max=9, wait=Duration(0.01), by=["name"]), sent)
    add(gatherer, "a", "b")
    assert [each.key for _, each in gatherer.take_back()] == ["a", "b"]
    add(gatherer, "c")
    async with asyncio.timeout(30):
        await sent.some.wait()
    assert sent == [["c"]]


def test_what_alerts_have_to_agree_in() -> None:
    one = alert(name="disk", severity=None, labels={"team": "a", "name": "label"})
    assert group_of(one, []) == ()
    assert group_of(one, ["name", "severity", "team", "room", "status"]) == ("disk", "", "a", "", "firing")

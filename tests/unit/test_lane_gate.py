"""What a lane does with the gate: its way of taking, what it logs, and that it keeps no probe in vain."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from common.alert import encode
from common.outcomes import Later
from common.units import Rate
from dispatcher.claim import Verdict
from dispatcher.entry import Entry, read
from dispatcher.lane import Lane
from dispatcher.settling import Settling
from dispatcher.take import Care, Taken
from tests.support.deliveries import alert, webhook
from tests.unit.test_tend import replica

OPEN = Taken("", "", 0, False, 1, -1, "0-0", -1, False, [])
CLOSED = replace(OPEN, gate="breaker", reason="HTTP 500", until=99, wait=1000)
ENTRY = Entry("1-1", {b"key": b"k", b"alert": encode(alert(key="k")), b"attempt": b"0", b"first_at": b"1"})
PROBE = replace(CLOSED, probe=True, entries=[ENTRY])


async def lane(**settings: Any) -> Lane:
    async with asyncio.TaskGroup() as tasks:
        return Lane(replica(tasks), webhook(**settings))


async def test_it_is_careful_while_the_gate_is_closed_and_while_it_ramps() -> None:
    made = await lane()
    assert made.outlook.care() is None
    for seen in (CLOSED, replace(OPEN, ramp=True)):
        made.outlook.see(seen)
        assert made.outlook.care() == Care(None, 15_000, 0)
    made.outlook.see(OPEN)
    assert made.outlook.care() is None


async def test_with_a_rate_it_always_is_and_pays_for_what_it_took_over_once() -> None:
    made = await lane(rate=Rate(5.0))
    made.outlook.made_besides(3)
    assert made.outlook.care() == Care(5.0, 15_000, 3)
    assert made.outlook.care() == Care(5.0, 15_000, 0)


async def test_it_tells_once_that_the_gate_has_closed_and_opened(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    made = await lane()
    for seen in (OPEN, CLOSED, replace(CLOSED, until=200), OPEN, OPEN):
        made.outlook.see(seen)
    told = [(record.message, vars(record)["fields"]) for record in caplog.records]
    assert told == [
        ("gate_closed", {"destination": "pager", "state": "breaker", "reason": "HTTP 500", "until": 99}),
        ("gate_opened", {"destination": "pager", "state": "breaker"}),
    ]


async def test_what_becomes_of_the_probe_is_marked_once() -> None:
    made = await lane()
    made.outlook.see(PROBE)
    for _ in range(2):
        made._post(Settling(ENTRY, None, Later(0, spends=False), claimed=False))
    assert [item.probe for item in made.settler._outbox] == [True, False]


async def test_a_probe_that_is_not_ours_any_more_is_given_back() -> None:
    made = await lane()
    made.outlook.see(PROBE)
    made._follow(ENTRY, read(ENTRY), Verdict.NOT_MINE, 1)
    assert made.settler._lease_back
    assert not made.settler._outbox


async def test_an_order_to_stop_gives_the_probe_back_with_its_entry() -> None:
    made = await lane()
    made.outlook.see(PROBE)
    made.replica.stopping.set()
    await made.start([ENTRY])
    [item] = made.settler._outbox
    assert (item.probe, item.attempt, item.settlement) == (True, None, Later(0, spends=False))

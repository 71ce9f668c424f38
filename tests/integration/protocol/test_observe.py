"""Any sequence of events of one incident, in any order, any number of times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from common import connect, keys
from common.alert import Alert, Status
from common.settings import Redis as RedisSection
from common.units import Duration
from ingest.append import Appender
from ingest.event import Event, Stored
from ingest.identity import window_key
from ingest.route import Router
from tests.integration.protocol.explore import SEED
from tests.integration.protocol.picture import NAMESPACE
from tests.support.servers import Server
from tests.support.settings import build

Told: TypeAlias = tuple[int, Status]
Send: TypeAlias = Callable[[list[Told]], list[Stored]]

MINUTE = 60_000
INCIDENT = "db1:disk"
statuses = st.sampled_from([Status.FIRING, Status.RESOLVED])
times = st.integers(0, 12).map(lambda n: 100 * MINUTE + n * 15_000)  # four to a window
events = st.lists(st.tuples(times, statuses), min_size=1, max_size=9, unique_by=lambda told: told[0])
quick = settings(
    max_examples=60,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Examples are synchronous."""
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture
def client(loop: asyncio.AbstractEventLoop, valkey: Server) -> Iterator[Redis]:
    """A client on that loop."""
    made = connect.client(RedisSection(url=valkey.unix_url, timeout=Duration(10)))
    yield made
    loop.run_until_complete(made.aclose(close_connection_pool=True))


@pytest.fixture
def send(loop: asyncio.AbstractEventLoop, client: Redis) -> Send:
    """Sends events, each in a request of its own."""
    configured = build()
    appender = Appender(client, configured, Router(configured), cluster=False)

    async def one_by_one(told: list[Told]) -> list[Stored]:
        return [(await appender.submit([_event(*each)]))[0] for each in told]

    return lambda told: loop.run_until_complete(one_by_one(told))


def _event(at: int, status: Status) -> Event:
    return Event(Alert(incident=INCIDENT, host="db1", name="disk", timestamp=at, status=status))


def expected(told: list[Told]) -> list[str]:
    """Keys of events sent in their order."""
    found: list[str] = []
    firing, last = False, ""
    closed: list[int] = []
    for at, status in told:
        n = sum(1 for end in closed if end // MINUTE == at // MINUTE)
        if status is Status.FIRING:
            firing = True
            found.append(window_key(INCIDENT, at, MINUTE, None, n, False))
            continue
        if firing or not closed:
            last = window_key(INCIDENT, at, MINUTE, None, n, True)
            closed.append(at)
        firing = False
        found.append(last)
    return found


@seed(SEED)
@quick
@given(told=events, data=st.data())
def test_in_order_each_gets_its_key_and_keeps_it(
    send: Send, client: Redis, loop: asyncio.AbstractEventLoop, told: list[Told], data: st.DataObject
) -> None:
    loop.run_until_complete(client.flushall())
    told = sorted(told)
    wanted = expected(told)
    answers = send(told)
    assert [answer.key for answer in answers] == wanted
    seen: set[str] = set()
    for answer in answers:
        assert answer.status == ("duplicate" if answer.key in seen else "queued")
        seen.add(answer.key)
    repeats = data.draw(st.lists(st.sampled_from(told), max_size=12))
    for each, answer in zip(repeats, send(repeats), strict=True):
        assert (answer.key, answer.status) == (wanted[told.index(each)], "duplicate")


@seed(SEED)
@quick
@given(told=events, older=st.lists(st.tuples(times, statuses), max_size=6))
def test_older_events_change_no_state(
    send: Send, client: Redis, loop: asyncio.AbstractEventLoop, told: list[Told], older: list[Told]
) -> None:
    loop.run_until_complete(client.flushall())
    told = sorted(told)
    known = [answer.key for answer in send(told)]
    # the last event that said something new: a resolution's repeat says nothing, a firing does
    last = max(
        at for n, (at, status) in enumerate(told) if status is Status.FIRING or known[n] not in known[:n]
    )
    key = keys.incident(NAMESPACE, INCIDENT)
    before = loop.run_until_complete(client.get(key))
    send([each for each in older if each[0] < last])
    assert loop.run_until_complete(client.get(key)) == before


@seed(SEED)
@quick
@given(told=events)
def test_in_any_order_a_repeat_at_once_has_the_same_key(
    send: Send, client: Redis, loop: asyncio.AbstractEventLoop, told: list[Told]
) -> None:
    loop.run_until_complete(client.flushall())
    for each in told:
        first, again = send([each, each])
        assert (again.key, again.status) == (first.key, "duplicate")

"""A pair of senders that repeat, each restarted at any time: one firing and one resolution per episode."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import ingest.observe
from common import connect
from common.alert import Alert, Status
from common.settings import Dedupe
from common.settings import Redis as RedisSection
from common.units import Duration
from ingest.append import Appender
from ingest.event import Event, Stored
from ingest.route import Router
from tests.integration.protocol.explore import SEED
from tests.integration.protocol.test_planted import changed
from tests.support.servers import Server
from tests.support.settings import build

FIRST = 1_764_410_400_000
INCIDENT = "am:0773ea086aecac3d"
GAP = 60_000  # ms between two episodes, and more than one of a pair is behind the other
FOR_EVER = ("LATE = 120000", "LATE = 1e15")  # by the server's clock all this happens at once
SETTINGS = build(dedupe=Dedupe(remember=Duration(1e9), repeat_interval=Duration(1e9)))


class Notice(NamedTuple):
    """What one of the pair says, and when."""

    at: int
    start: int
    end: int | None


class Episode(NamedTuple):
    """How long it lasts, and for each of the pair how far it is behind and after how long it is restarted."""

    lasts: int
    behind: tuple[int, int]
    restarts: tuple[int, int]


episodes = st.lists(
    st.builds(
        Episode,
        st.integers(60_000, 600_000),
        st.tuples(st.integers(0, 50_000), st.integers(0, 50_000)),
        st.tuples(st.integers(1_000, 900_000), st.integers(1_000, 900_000)),
    ),
    min_size=1,
    max_size=4,
)


def notices(told: list[Episode]) -> list[Notice]:
    """All that both say, in order of time: every half minute, and of an end three times."""
    found: list[Notice] = []
    begins = FIRST
    for episode in told:
        over = begins + episode.lasts + min(episode.behind)  # what begins after that is another episode
        for behind, restarts in zip(episode.behind, episode.restarts, strict=True):
            began, ended = begins + behind, begins + behind + episode.lasts
            renewed = began + restarts if began + restarts < over else ended
            firings = [
                Notice(at, began if at < renewed else renewed, None) for at in range(began, ended, 30_000)
            ]
            start = firings[-1].start  # none ends what it has not said to fire
            found += [*firings, *(Notice(ended + 1 + n, start, ended) for n in range(3))]
        begins += episode.lasts + max(episode.behind) + GAP
    return sorted(found, key=lambda notice: notice.at)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Examples are synchronous."""
    made = asyncio.new_event_loop()
    yield made
    made.close()


def event(notice: Notice) -> Event:
    over = notice.end is not None
    return Event(
        Alert(
            incident=INCIDENT,
            host="h",
            name="n",
            status=Status.RESOLVED if over else Status.FIRING,
            timestamp=notice.end or notice.start,
            starts_at=notice.start,
            ends_at=notice.end,
        ),
        repeated=True,
    )


@seed(SEED)
@settings(
    max_examples=60,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(told=episodes)
def test_each_episode_is_one_firing_and_one_resolution(
    loop: asyncio.AbstractEventLoop, valkey: Server, monkeypatch: pytest.MonkeyPatch, told: list[Episode]
) -> None:
    async def send() -> list[Stored]:
        client = connect.client(RedisSection(url=valkey.unix_url, timeout=Duration(10)))
        try:
            await client.flushall()
            appender = Appender(client, SETTINGS, Router(SETTINGS), cluster=False)
            return [(await appender.submit([event(notice)]))[0] for notice in notices(told)]
        finally:
            await client.aclose(close_connection_pool=True)

    with monkeypatch.context() as patch:
        patch.setattr(ingest.observe, "_script", changed(ingest.observe._script, FOR_EVER))
        stored = loop.run_until_complete(send())
    queued = [one.key for one in stored if one.status == "queued"]
    kinds = Counter(key.rpartition(":")[2] for key in queued)
    assert kinds == {"r0": len(told), "resolved": len(told)}
    starts = Counter(key.split(":")[2] for key in queued)
    assert set(starts.values()) == {2}  # each start has its end

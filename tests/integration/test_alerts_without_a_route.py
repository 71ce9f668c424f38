"""An alert that no route matches is refused, never taken and dropped."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from common.http import Site
from common.listen import serve
from common.settings import Ingest
from ingest.event import Event, Reading, Stored
from ingest.metrics import Metrics
from ingest.operations import POSTED
from ingest.receive import Receiver
from tests.support.ingest import Memory

LOST = {"host": "h", "name": "lost"}
PLACED = {"host": "h", "name": "placed"}


class Routing:
    """Append and evaluate; an alert called `lost` has no route."""

    async def submit(self, events: list[Event], size: int = 0) -> list[Stored]:
        names = [event.alert.name for event in events]
        return [Stored(f"h:{name}", "queued", [] if name == "lost" else ["pager"], []) for name in names]


class NoRules:
    """Evaluate without rules."""

    async def submit(self, readings: list[Reading]) -> list[list[Event]]:
        return [[] for _ in readings]


@pytest.fixture
async def metrics() -> Metrics:
    return Metrics(POSTED)


@pytest.fixture
async def url(metrics: Metrics) -> AsyncIterator[str]:
    receiver = Receiver(Ingest(), Routing(), NoRules(), Memory().spender(), metrics)
    routes = {path: {"POST": handler} for path, handler in receiver.handlers().items()}
    site = Site(routes, ready=lambda: None, registry=metrics.registry)
    server = await serve(site, "127.0.0.1:0", setting="ingest.listen")
    yield f"http://{server.address}/v1/alerts"
    await server.close(1)


async def test_alone_it_is_400(url: str, metrics: Metrics) -> None:
    async with aiohttp.ClientSession() as session, session.post(url, json=LOST) as answer:
        assert answer.status == 400
        assert "no route" in (await answer.json(content_type=None))["detail"]
    assert counted(metrics) == {"invalid": 1}


async def test_in_a_batch_it_is_one_of_the_rejected(url: str, metrics: Metrics) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.post(url, json=[PLACED, {}, LOST]) as answer:
            assert answer.status == 207
            told = await answer.json()
        assert (told["accepted"], [item["index"] for item in told["rejected"]]) == (1, [1, 2])
        async with session.post(url, json=[LOST, LOST]) as answer:
            assert answer.status == 400
    assert counted(metrics) == {"queued": 1, "invalid": 4}


async def test_lines_are_told_in_their_order(url: str) -> None:
    lines = b'\n{"host":"h","name":"lost"}\n{}\n{"host":"h","name":"placed"}\n'
    headers = {"Content-Type": "application/x-ndjson"}
    async with aiohttp.ClientSession() as session, session.post(url, data=lines, headers=headers) as answer:
        rejected = (await answer.json())["rejected"]
    assert [(item["index"], item["line"]) for item in rejected] == [(0, 2), (1, 3)]


def counted(metrics: Metrics) -> dict[str, float]:
    """Native alerts by outcome, without zeros."""
    return {
        sample.labels["outcome"]: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "redispatch_alerts_total" and sample.labels["source"] == "native" and sample.value
    }

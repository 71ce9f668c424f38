"""The trace of a request is that of every alert in it, unless an event brings its own; none is made up."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from common.settings import Ingest
from tests.support.ingest import Served, served

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OWN = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
EVENT = {"specversion": "1.0", "id": "1", "source": "s", "type": "t"}
NOTICE = [{"labels": {"alertname": "x", "host": "h"}}]
ALERTS = b'{"host":"h","name":"a"}\n{"host":"h","name":"b"}'
JSON, LINES = "application/json", "application/x-ndjson"
BATCH = "application/cloudevents-batch+json"


@pytest.fixture
async def ingest() -> AsyncIterator[Served]:
    async with served(Ingest()) as made:
        yield made


async def traces(ingest: Served, path: str, body: Any, media: str = JSON, **headers: str) -> list[str | None]:
    """Those of the events that a request makes, which has to be taken."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()} | {"Content-Type": media}
    async with (
        aiohttp.ClientSession(ingest.url) as http,
        http.post(path, data=data, headers=named) as answer,
    ):
        assert answer.status in (200, 201), await answer.text()
    return [event.trace for event in ingest.memory.events]


@pytest.mark.parametrize(
    ("path", "body", "media", "count"),
    [
        ("/v1/alerts", {"host": "h", "name": "n"}, JSON, 1),
        ("/v1/alerts", ALERTS, LINES, 2),
        ("/v1/readings", {"host": "h", "metric": "disk", "value": 100}, JSON, 2),
        ("/api/v2/alerts", NOTICE, JSON, 1),
        ("/v1/events", [EVENT], BATCH, 1),
    ],
)
async def test_it_is_that_of_all(ingest: Served, path: str, body: Any, media: str, count: int) -> None:
    assert await traces(ingest, path, body, media, traceparent=PARENT) == [PARENT] * count


async def test_none_and_a_wrong_one(ingest: Served) -> None:
    assert await traces(ingest, "/v1/alerts", {"host": "h", "name": "n"}) == [None]
    wrong = PARENT.upper()
    assert (await traces(ingest, "/v1/alerts", {"host": "h", "name": "n"}, traceparent=wrong))[1:] == [None]


async def test_an_event_s_own_counts(ingest: Served) -> None:
    several = [{**EVENT, "traceparent": OWN, "tracestate": "a=1"}, {**EVENT, "id": "2"}]
    assert await traces(ingest, "/v1/events", several, BATCH, traceparent=PARENT) == [f"{OWN} a=1", PARENT]


async def test_an_event_in_binary_mode(ingest: Served) -> None:
    binary = {f"ce_{name}": value for name, value in EVENT.items()}
    assert await traces(ingest, "/v1/events", {}, traceparent=PARENT, ce_traceparent=OWN, **binary) == [OWN]


@pytest.mark.parametrize("wrong", [7, None, {}, "x", OWN.replace("1", "G")])
async def test_a_wrong_extension_is_no_fault(ingest: Served, wrong: Any) -> None:
    event = {**EVENT, "traceparent": wrong, "tracestate": wrong}
    assert await traces(ingest, "/v1/events", event, traceparent=PARENT) == [PARENT]

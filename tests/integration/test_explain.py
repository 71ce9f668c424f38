"""What `explain` says of incident, key and destinations is what ingest makes of the same body."""

from __future__ import annotations

import json
from typing import Any

import pytest
from redis.asyncio import Redis

from common.settings import Match, Route
from ingest.append import Appender
from ingest.formats import native
from ingest.formats.bodies import Kind
from ingest.route import Router
from ops.dry_run import dry_run
from tests.support.servers import Server
from tests.support.settings import build

NOW = 1_795_986_120_000
SETTINGS = build(
    destinations=["pager", "chat"],
    routes=[Route(match=Match(severity="critical"), to=["pager"]), Route(to=["chat"])],
)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"severity": "critical", "timestamp": NOW - 90_000},
        {"severity": "critical", "labels": {"mount": "/var"}},
        {"status": "resolved"},
        {"status": "resolved", "severity": "critical"},
        {"starts_at": NOW - 5000},
        {"status": "resolved", "starts_at": NOW - 5000, "ends_at": NOW},
    ],
)
async def test_explained_is_what_comes(redis: Redis, server: Server, fields: dict[str, Any]) -> None:
    body = json.dumps({"host": "web-1", "name": "disk", **fields}).encode()
    (told,) = dry_run(SETTINGS, body, NOW).alerts
    appender = Appender(redis, SETTINGS, Router(SETTINGS), cluster=server.kind == "cluster")
    ((_, event),) = native.alerts(body, Kind.JSON, NOW, 10_000).items
    (stored,) = await appender.submit([event])
    await appender.close()
    assert (stored.key, stored.destinations) == (told.key, [sent.name for sent in told.destinations])
    assert event.alert.incident == told.incident

"""Real senders: Prometheus, Alertmanager and collectd as Debian has them, and the SDK of CloudEvents."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cloudevents.core.bindings import http
from cloudevents.core.v1.event import CloudEvent

from tests.support import senders
from tests.support.fleet import Fleets
from tests.support.processes import Processes
from tests.support.receiver import Receiver, Request
from tests.support.servers import Server

LONG = 60.0  # seconds; these senders take their time


def told(requests: list[Request]) -> list[tuple[str, str, str]]:
    """Type, source and name of each alert that was delivered."""
    bodies = [request.json() for request in requests]
    return [(body["type"], body["data"]["source"], body["data"]["name"]) for body in bodies]


async def test_prometheus_with_redispatch_as_its_alertmanager(
    fleets: Fleets, processes: Processes, receiver: Receiver, valkey: Server
) -> None:
    ingest, _ = await (await fleets(valkey)).both()
    address = ingest.url.removeprefix("http://")
    async with senders.scraped() as value:
        value.value = 11
        first = await senders.prometheus(processes, value, address)
        await receiver.wait_for(1, LONG)
        repeated = {"source": "prometheus", "outcome": "duplicate"}
        await ingest.wait_metric("redispatch_alerts_total", 3, LONG, **repeated)
        await first.kill()
        seen = await ingest.metric("redispatch_alerts_total", **repeated)
        # another one that knows nothing of the first, so that its alert has another start
        await senders.prometheus(processes, value, address, "b")
        await ingest.wait_metric("redispatch_alerts_total", seen + 2, LONG, **repeated)
        assert len(receiver.requests) == 1
        value.value = 1
        requests = await receiver.wait_for(2, LONG)
    name = ("prometheus", "QueueDeep")
    assert told(requests) == [("alert.firing", *name), ("alert.resolved", *name)]
    firing, resolved = (request.json()["data"] for request in requests)
    assert (firing["host"], firing["severity"], firing["summary"]) == ("web-1", "critical", "depth is 11")
    assert firing["incident"] == resolved["incident"]
    assert firing["starts_at"] == resolved["starts_at"]
    assert await ingest.metric("redispatch_alerts_total", outcome="conflict") == 0
    assert len(receiver.requests) == 2


def posted(seconds: float) -> list[dict[str, Any]]:
    """An alert that ends so many seconds from now."""
    end = datetime.fromtimestamp(time.time(), UTC) + timedelta(seconds=seconds)
    labels = {"alertname": "Down", "host": "web-1", "severity": "critical"}
    return [{"labels": labels, "endsAt": end.isoformat()}]


async def hand_over(session: aiohttp.ClientSession, address: str, alerts: list[dict[str, Any]]) -> None:
    async with session.post(f"http://{address}/api/v2/alerts", json=alerts) as answer:
        assert answer.status == 200, await answer.text()


async def test_alertmanager_with_redispatch_as_its_receiver(
    fleets: Fleets, processes: Processes, receiver: Receiver, valkey: Server
) -> None:
    fleet = await fleets(valkey)
    ingest, _ = await fleet.both()
    address = await senders.alertmanager(processes, ingest.url)
    await hand_over(fleet.http, address, posted(3600))
    await receiver.wait_for(1, LONG)
    async with fleet.http.get(f"http://{address}/api/v2/alerts") as answer:
        [alert] = await answer.json()
    await hand_over(fleet.http, address, posted(0))
    requests = await receiver.wait_for(2, LONG)
    assert {request.json()["data"]["incident"] for request in requests} == {f"am:{alert['fingerprint']}"}
    name = ("alertmanager", "Down")
    assert told(requests) == [("alert.firing", *name), ("alert.resolved", *name)]


async def test_alertmanager_sends_again_what_was_refused(
    fleets: Fleets,
    processes: Processes,
    receiver: Receiver,
    new_server: Callable[..., Server],
) -> None:
    server = new_server("valkey")
    fleet = await fleets(server)
    ingest, _ = await fleet.both()
    address = await senders.alertmanager(processes, ingest.url)
    server.kill()
    await hand_over(fleet.http, address, posted(3600))
    refused = {"route": "/v1/alertmanager", "code": "503"}
    await ingest.wait_metric("redispatch_ingest_requests_total", 1, LONG, **refused)
    server.restart()
    assert told(await receiver.wait_for(1, LONG)) == [("alert.firing", "alertmanager", "Down")]


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """An empty directory."""
    made = tmp_path / "box"
    made.mkdir()
    return made


async def test_collectd(
    fleets: Fleets, processes: Processes, receiver: Receiver, valkey: Server, box: Path
) -> None:
    metric = "filecount.box.files"
    rule = {"name": "box-full", "metric": metric, "when": ">= 1", "clear": "< 1", "severity": "warning"}
    ingest, _ = await (await fleets(valkey, rules=[rule])).both()
    await senders.collectd(processes, ingest.url, box)
    notice, reading = ("collectd", "collectd_filecount_files"), ("reading", "box-full")
    # it says OKAY of each threshold when it starts
    assert told(await receiver.wait_for(1, LONG)) == [("alert.resolved", *notice)]
    file = box / "one"
    file.touch()
    requests = await receiver.wait_for(3, LONG)
    assert set(told(requests[1:])) == {("alert.firing", *notice), ("alert.firing", *reading)}
    assert {request.json()["data"]["host"] for request in requests} == {"web-1"}
    file.unlink()
    requests = await receiver.wait_for(5, LONG)
    assert set(told(requests[3:])) == {("alert.resolved", *notice), ("alert.resolved", *reading)}
    assert await ingest.metric("redispatch_alerts_total", source="collectd", outcome="stored") > 2


async def test_the_sdk_of_cloudevents_in_all_three_modes(
    fleets: Fleets, receiver: Receiver, valkey: Server
) -> None:
    fleet = await fleets(valkey)
    ingest, _ = await fleet.both()
    events = [
        CloudEvent(
            {
                "id": str(n),
                "source": "/agents/web-1",
                "type": "disk.full",
                "specversion": "1.0",
                "subject": "Euro € 😀",
                "datacontenttype": "application/json",
                "time": datetime.now(UTC),
            },
            {"severity": "critical", "summary": f"für {n}"},
        )
        for n in range(4)
    ]
    structured, binary = http.to_structured_event(events[0]), http.to_binary_event(events[1])
    batch = [json.loads(http.to_structured_event(event).body) for event in events[2:]]
    for headers, body in (
        (structured.headers, structured.body),
        (binary.headers, binary.body),
        ({"content-type": "application/cloudevents-batch+json"}, json.dumps(batch).encode()),
    ):
        async with fleet.http.post(f"{ingest.url}/v1/events", data=body, headers=headers) as answer:
            assert answer.status == 201, await answer.text()
    requests = await receiver.wait_for(4)
    assert {request.id for request in requests} == {f"ce:~2fagents~2fweb-1:{n}" for n in range(4)}
    for request in requests:
        data = request.json()["data"]
        assert data["labels"] == {"subject": "Euro € 😀"}
        assert (data["severity"], data["summary"]) == ("critical", f"für {data['key'][-1]}")

"""The routes of other senders: statuses, overload, chosen keys, hooks; nothing that is posted is a 5xx."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from common.settings import Hook, HookAlert, HookReading, Ingest
from common.units import Size
from ingest.operations import POSTED
from tests.support.ingest import Served, served
from tests.support.samples import JSON, SAMPLES, malformed, payload

SMALL = Ingest(max_body=Size(1_000_000), max_alert=Size(50_000))
HOOKS = (
    Hook(name="any", items="alerts", alert=HookAlert(host="host", name="name")),
    Hook(name="measured", reading=HookReading(host="host", metric="metric", value="value")),
)
PATHS = [route.replace("{name}", "any") for route in POSTED]
MALFORMED = sorted(file.name for file in (SAMPLES / "malformed").iterdir())
ALERT = {"labels": {"alertname": "Down", "instance": "db1"}, "startsAt": "2026-03-02T08:14:37Z"}
READING = {"host": "db1", "plugin": "disk", "type": "x", "values": [100], "time": 1_772_439_277}
EVENT = {"specversion": "1.0", "id": "1", "source": "/db1", "type": "t"}
VALID: dict[str, object] = {
    "/api/v2/alerts": [ALERT],
    "/v1/alertmanager": {"alerts": [ALERT]},
    "/v1/grafana": {"alerts": [ALERT]},
    "/v1/events": EVENT,
    "/v1/collectd": [READING],
    "/v1/telegraf": {"name": "disk", "fields": {"a": 1}, "tags": {"host": "db1"}},
    "/v1/hooks/any": {"alerts": [{"host": "h", "name": "n"}]},
    "/v1/hooks/measured": {"host": "h", "metric": "m", "value": 1},
}
Post = Callable[..., Any]


@pytest.fixture
async def site() -> AsyncIterator[Served]:
    async with served(SMALL, hooks=HOOKS) as made:
        yield made


@pytest.fixture
async def post(site: Served) -> AsyncIterator[Post]:
    """`status, body = await post("/v1/grafana", body, **headers)`."""
    async with aiohttp.ClientSession(site.url) as session:

        async def send(path: str, body: Any, headers: Any = JSON, method: str = "POST") -> tuple[int, Any]:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            async with session.request(method, path, data=raw, headers=headers) as answer:
                return answer.status, json.loads(await answer.read())

        yield send


def batch(accepted: int = 0, duplicates: int = 0, stored: int = 0) -> dict[str, Any]:
    return {"accepted": accepted, "duplicates": duplicates, "stored": stored, "rejected": []}


@pytest.mark.parametrize("path", ["/v1/alertmanager", "/v1/grafana", "/v1/hooks/any"])
async def test_new_is_201_and_known_200(post: Post, path: str) -> None:
    assert await post(path, VALID[path]) == (201, batch(accepted=1))
    assert await post(path, VALID[path]) == (200, batch(duplicates=1))


async def test_an_alertmanager_says_200_to_both(post: Post) -> None:
    assert await post("/api/v2/alerts", [ALERT]) == (200, batch(accepted=1))
    assert await post("/api/v2/alerts", [ALERT]) == (200, batch(duplicates=1))
    assert await post("/api/v2/alerts", []) == (200, batch())


async def test_an_alertmanager_says_400_and_stores_what_is_valid(site: Served, post: Post) -> None:
    status, told = await post("/api/v2/alerts", payload("prometheus-api-v2-alerts-edge.json"))
    assert (status, told["accepted"]) == (400, 4)
    assert [rejected["index"] for rejected in told["rejected"]] == [2, 5, 6]
    assert told["detail"].startswith("item 2: endsAt: before startsAt")
    assert len(site.memory.events) == 4


async def test_other_routes_say_207(post: Post) -> None:
    status, told = await post("/v1/alertmanager", {"alerts": [ALERT, {"labels": {}}]})
    assert (status, told["accepted"]) == (207, 1)
    assert told["rejected"] == [
        {"index": 1, "error": "labels.alertname: missing", "field": "labels.alertname"}
    ]
    status, told = await post("/v1/alertmanager", {"alerts": [{"labels": {}}]})
    assert (status, told["detail"]) == (400, "no item is valid; item 0: labels.alertname: missing")


async def test_one_cloudevent_is_answered_like_one_alert(post: Post) -> None:
    status, told = await post("/v1/events", EVENT)
    assert (status, told["key"], told["status"]) == (201, "ce:~2fdb1:1", "queued")
    assert (await post("/v1/events", EVENT))[0] == 200
    assert await post("/v1/events", [EVENT, {**EVENT, "id": "2"}]) == (201, batch(1, 1))
    assert await post("/v1/events", []) == (200, batch())


async def test_readings_are_stored_and_meet_rules(site: Served, post: Post) -> None:
    assert await post("/v1/hooks/measured", {"host": "h", "metric": "disk", "value": "100"}) == (
        201,
        batch(accepted=2, stored=1),
    )
    assert await post("/v1/collectd", [READING]) == (201, batch(stored=1))
    assert [reading.metric for reading in site.memory.readings] == ["disk", "disk.x"]


@pytest.mark.parametrize("path", VALID)
async def test_overload_is_503_on_every_route(site: Served, post: Post, path: str) -> None:
    site.memory.down = True
    status, told = await post(path, VALID[path])
    assert (status, told["detail"]) == (503, "Redis is away")
    assert site.memory.events == []


async def test_a_chosen_key_has_the_place_of_each_alert(site: Served, post: Post) -> None:
    headers = {**JSON, "Idempotency-Key": "k"}
    await post("/v1/alertmanager", {"alerts": [ALERT, {"labels": {}}, ALERT]}, headers)
    await post("/v1/events", EVENT, headers)
    values = [{"host": "a", "metric": "disk", "value": 60}, {"host": "b", "metric": "disk", "value": 100}]
    await post("/v1/hooks/measured", values, headers)
    assert [event.key for event in site.memory.events] == [
        *("id:anonymous:k:0", "id:anonymous:k:2", "id:anonymous:k"),
        *("id:anonymous:k:0:warm", "id:anonymous:k:1:full", "id:anonymous:k:1:warm"),
    ]


async def test_several_values_of_one_item_have_keys_of_their_own(site: Served, post: Post) -> None:
    family = {"name": "disk", "metrics": [{"labels": {"host": host}, "value": "60"} for host in "ab"]}
    body = [{**READING, "values": [None]}, family]
    await post("/v1/collectd", body, {**JSON, "Idempotency-Key": "k"})
    assert [event.key for event in site.memory.events] == [
        "id:anonymous:k:1:warm",
        "id:anonymous:k:1-1:warm",
    ]


async def test_hooks_that_are_none(post: Post) -> None:
    status, told = await post("/v1/hooks/other", {})
    assert (status, told["detail"]) == (404, "no hook is called other; hooks are in the configuration")
    assert (await post("/v1/hooks/", {}))[0] == 404
    assert (await post("/v1/hooks/any/more", {}))[0] == 404
    assert (await post("/v1/hooks/any", {}, method="PUT"))[0] == 405


async def test_no_name_of_a_hook_becomes_a_label(site: Served, post: Post) -> None:
    for name in ("any", "other"):
        await post(f"/v1/hooks/{name}", {})
    assert [site.answers.get_nowait() for _ in range(2)] == [
        ("/v1/hooks/{name}", 200),
        ("/v1/hooks/{name}", 404),
    ]


async def test_items_are_counted_by_their_source(site: Served, post: Post) -> None:
    for path, body in VALID.items():
        await post(path, body)
    counted = {
        (sample.labels["source"], sample.labels["outcome"]): sample.value
        for family in site.metrics.registry.collect()
        if family.name == "redispatch_alerts"
        for sample in family.samples
        if sample.value
    }
    queued = dict.fromkeys([(each, "queued") for each in ("prometheus", "cloudevent", "hook")], 1)
    known = {(each, "duplicate"): 1 for each in ("alertmanager", "grafana")}
    stored = {(each, "stored"): 1 for each in ("collectd", "telegraf", "hook")}
    assert counted == {**queued, **known, **stored}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", MALFORMED)
async def test_malformed_bodies_are_refused_everywhere(post: Post, path: str, name: str) -> None:
    encodings = {"gz": "gzip", "bin": "deflate"}
    encoding = encodings.get(name.rpartition(".")[2])
    headers = {**JSON, "Content-Encoding": encoding} if encoding else JSON
    status, _ = await post(path, malformed(name), headers)
    assert status in (200, 201, 400)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "content_type",
    ["application/json; charset=utf-99", "application/json; charset=iso-8859-1", "application/xml", "/", "x"],
)
async def test_other_types_and_charsets_are_415(post: Post, path: str, content_type: str) -> None:
    status, _ = await post(path, malformed("latin1.json"), {"Content-Type": content_type})
    assert status == 415

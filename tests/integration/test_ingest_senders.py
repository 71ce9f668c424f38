"""Tokens over HTTP: asked for before the body is read, on every route that takes something."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from common.settings import Hook, HookAlert, Ingest, Token
from common.units import Rate, Secret, Size
from ingest.operations import POSTED
from ingest.receive import HOOKS
from tests.support.ingest import Served, served
from tests.support.raw import Wire

GOOD, SLOW = "good-token", "slow-token"
ALERT = {"host": "web-1", "name": "disk-full", "timestamp": 1_772_439_277}
LABELS = {"alertname": "x", "host": "web-1"}
PROMETHEUS = [{"labels": LABELS, "startsAt": "2026-03-02T08:00:00Z"}]
GROUP = {"version": "4", "status": "firing", "alerts": [{**PROMETHEUS[0], "status": "firing"}]}
EVENT = {"specversion": "1.0", "id": "1", "source": "s", "type": "t"}
BODIES = {
    "/v1/alerts": ALERT,
    "/v1/readings": {"host": "h", "metric": "m", "value": 1},
    "/api/v2/alerts": PROMETHEUS,
    "/v1/alertmanager": GROUP,
    "/v1/grafana": GROUP,
    "/v1/events": EVENT,
    "/v1/collectd": [
        {
            "values": [1],
            "dstypes": ["gauge"],
            "dsnames": ["value"],
            "time": 1_772_439_277,
            "interval": 10,
            "host": "h",
            "plugin": "cpu",
            "plugin_instance": "",
            "type": "percent",
            "type_instance": "",
        }
    ],
    "/v1/telegraf": {"name": "cpu", "timestamp": 1_772_439_277, "tags": {"host": "h"}, "fields": {"idle": 1}},
    HOOKS + "/mine": {"h": "web-1", "n": "x"},
}
GIVES_UP = ("/api/v2/alerts", "/v1/alertmanager", "/v1/grafana", HOOKS + "/mine")


def token(name: str, text: str, rate: Rate | None = None) -> Token:
    return Token(name=name, sha256=Secret(hashlib.sha256(text.encode()).hexdigest()), rate=rate)


@pytest.fixture
async def site() -> AsyncIterator[Served]:
    hook = Hook(name="mine", alert=HookAlert(host="h", name="n"))
    tokens = [token("agents", GOOD), token("slow", SLOW, Rate(5))]
    async with served(Ingest(max_body=Size(100_000_000)), hooks=[hook], tokens=tokens) as made:
        yield made


@pytest.fixture
async def session(site: Served) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(site.url) as made:
        yield made


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def head(length: int, *more: str) -> bytes:
    lines = ["POST /v1/alerts HTTP/1.1", "Host: x", "Content-Type: application/json", *more]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


BODY = json.dumps(ALERT).encode()
ASKS = "Expect: 100-continue"
AUTHORIZED = f"Authorization: Bearer {GOOD}"


def test_every_route_is_tried() -> None:
    assert {path.replace("{name}", "mine") for path in POSTED} == set(BODIES)


@pytest.mark.parametrize("path", BODIES)
async def test_every_route_wants_a_token(site: Served, session: aiohttp.ClientSession, path: str) -> None:
    for headers in ({}, bearer("other")):
        async with session.post(path, json=BODIES[path], headers=headers) as answer:
            assert answer.status == 401
            assert answer.content_type == "application/problem+json"
            challenge = answer.headers["WWW-Authenticate"]
            assert challenge.startswith("Bearer realm=")
            assert ("invalid_token" in challenge) == bool(headers)
    assert not site.memory.events
    assert not site.memory.readings
    async with session.post(path, json=BODIES[path], headers=bearer(GOOD)) as answer:
        assert answer.status in (200, 201)


async def test_probes_want_none(session: aiohttp.ClientSession) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        async with session.get(path) as answer:
            assert answer.status == 200


async def test_which_hooks_there_are_is_told_to_those_with_a_token(session: aiohttp.ClientSession) -> None:
    for headers, status in (({}, 401), (bearer(GOOD), 404)):
        async with session.post(HOOKS + "/none", json={}, headers=headers) as answer:
            assert answer.status == status


async def test_basic_is_a_token_as_the_password(session: aiohttp.ClientSession) -> None:
    basic = "Basic " + base64.b64encode(f"collectd:{GOOD}".encode()).decode()
    async with session.post("/v1/alerts", json=ALERT, headers={"Authorization": basic}) as answer:
        assert answer.status == 201


async def test_idempotency_keys_are_each_senders_own(site: Served, session: aiohttp.ClientSession) -> None:
    for text in (GOOD, SLOW):
        headers = {**bearer(text), "Idempotency-Key": "run"}
        async with session.post("/v1/alerts", json=ALERT, headers=headers) as answer:
            assert answer.status == 201
    assert [event.key for event in site.memory.events] == ["id:agents:run", "id:slow:run"]


@pytest.mark.parametrize("path", BODIES)
async def test_over_its_rate_a_sender_is_told_when_to_come_back(
    site: Served, session: aiohttp.ClientSession, path: str
) -> None:
    site.memory.wait = 2.3
    async with session.post(path, json=BODIES[path], headers=bearer(SLOW)) as answer:
        assert answer.status == (503 if path in GIVES_UP else 429)
        assert answer.headers["Retry-After"] == "3"
        assert answer.content_type == "application/problem+json"
    assert not site.memory.events
    assert not site.memory.readings
    assert site.memory.spent == [("slow", 1)]
    async with session.post(path, json=BODIES[path], headers=bearer(GOOD)) as answer:
        assert answer.status in (200, 201)
    assert len(site.memory.spent) == 1


async def test_each_valid_item_is_paid_for(site: Served, session: aiohttp.ClientSession) -> None:
    bodies: list[list[dict[str, object]]] = [[{**ALERT}, {}, {**ALERT}], [], [{}]]
    for body in bodies:
        async with session.post("/v1/alerts", json=body, headers=bearer(SLOW)) as answer:
            assert answer.status in (200, 201, 207, 400)
    assert site.memory.spent == [("slow", 2)]


async def test_redis_away_is_503_with_a_rate_too(site: Served, session: aiohttp.ClientSession) -> None:
    site.memory.down = True
    async with session.post("/v1/alerts", json=ALERT, headers=bearer(SLOW)) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "3")


@pytest.fixture
async def wire(site: Served) -> AsyncIterator[Wire]:
    async with Wire(site.address) as made:
        yield made


async def test_a_refusal_does_not_wait_for_the_body(site: Served, wire: Wire) -> None:
    wire.send(head(900_000), b"x")
    reply = await wire.reply()
    assert (reply.status, reply.headers["Connection"]) == (401, "close")
    assert await wire.closed()


async def test_a_small_body_that_is_refused_leaves_the_connection_usable(wire: Wire) -> None:
    for length in (0, 100, 65_536):
        wire.send(head(length), b"x" * length, head(len(BODY), AUTHORIZED), BODY)
        assert [(await wire.reply()).status for _ in range(2)] == [401, 201 if length == 0 else 200]


async def test_a_large_body_that_is_refused_closes_it_and_the_next_one_works(
    site: Served, wire: Wire
) -> None:
    """What the sender has under way is read for a moment, so that the answer reaches it."""
    wire.send(head(50_000_000))
    for _ in range(20):
        wire.send(b"x" * 50_000)
    reply = await wire.reply()
    assert (reply.status, reply.headers["Connection"]) == (401, "close")
    async with Wire(site.address) as other:
        other.send(head(len(BODY), AUTHORIZED), BODY)
        assert (await other.reply()).status == 201


async def test_who_asks_first_is_refused_instead_of_told_to_go_on(wire: Wire) -> None:
    wire.send(head(len(BODY), ASKS))
    assert (await wire.reply()).status == 401


async def test_who_asks_first_and_may_is_told_to_go_on(wire: Wire) -> None:
    wire.send(head(len(BODY), ASKS, AUTHORIZED))
    assert (await wire.reply()).status == 100
    wire.send(BODY)
    assert (await wire.reply()).status == 201


async def test_headers_that_repeat(wire: Wire) -> None:
    other = f"Authorization: Bearer {SLOW}"
    for more, status in (((AUTHORIZED,), 201), ((other,), 400), (("authorization: x",), 400)):
        wire.send(head(len(BODY), AUTHORIZED, *more), BODY)
        assert (await wire.reply()).status == status


async def test_a_header_that_is_too_long_is_400(wire: Wire) -> None:
    wire.send(head(len(BODY), "Authorization: Bearer " + "x" * 10_000), BODY)
    assert (await wire.reply()).status == 400


async def test_many_slow_ones_without_a_token_hold_nothing(site: Served) -> None:
    """Each is refused before a byte of its body, however much it says will come."""
    wires = [Wire(site.address) for _ in range(20)]
    async with asyncio.timeout(30):
        for wire in wires:
            await wire.__aenter__()
            wire.send(head(10_000_000), b"x" * 1000)
        for wire in wires:
            assert (await wire.reply()).status == 401
            await wire.__aexit__(None, None, None)
    assert not site.memory.begun.is_set()

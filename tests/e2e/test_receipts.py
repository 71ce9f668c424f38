"""`GET /v1/alerts/{key}` through the life of a delivery, on every kind of server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from tests.support.fleet import NAME, NAMESPACE, Fleets, Running, eventually
from tests.support.receiver import Answer, Receiver
from tests.support.servers import Server

PATIENT = {"timeout": "60s", "retry": {"preset": "webhook", "base": "200ms", "cap": "200ms", "attempts": 5}}


async def ask(ingest: Running, key: str) -> tuple[int, Any]:
    async with ingest.http.get(f"{ingest.url}/v1/alerts/{key}") as answer:
        kind = "json" if answer.status == 200 else "problem+json"
        assert answer.headers["Content-Type"] == f"application/{kind}"
        return answer.status, await answer.json(content_type=None)


async def place(ingest: Running, key: str) -> dict[str, Any]:
    """What the receipt says of the only destination."""
    status, told = await ask(ingest, key)
    assert (status, told["key"]) == (200, key)
    [only] = told["destinations"]
    assert only["name"] == NAME
    return dict(only)


async def until(ingest: Running, key: str, holds: Callable[[dict[str, Any]], bool], what: str) -> Any:
    async def seen() -> dict[str, Any] | None:
        told = await place(ingest, key)
        return told if holds(told) else None

    return await eventually(seen, what)


def moment(text: str) -> datetime:
    told = datetime.fromisoformat(text)
    assert told.utcoffset() == timedelta(0)
    return told


async def test_a_delivery_through_its_life(fleets: Fleets, server: Server, receiver: Receiver) -> None:
    fleet = await fleets(server, destination=PATIENT)
    ingest = await fleet.ingest()
    [key] = await fleet.post(ingest)
    told = await place(ingest, key)
    first_at = told["first_at"]
    assert told == {
        "name": NAME,
        "state": "queued",
        "attempts": 0,
        "status": None,
        "error": None,
        "first_at": first_at,
        "last_at": first_at,
        "next_at": None,
    }
    held, again = asyncio.Event(), asyncio.Event()
    receiver.answers += [Answer(503, until=held), Answer(until=again)]
    await fleet.dispatcher()
    told = await until(ingest, key, lambda told: told["state"] == "in_flight", "in flight")
    assert moment(told["last_at"]) >= moment(first_at) == moment(told["first_at"])
    held.set()
    told = await until(ingest, key, lambda told: told["attempts"] == 1, "one attempt")
    assert told["state"] in ("retrying", "in_flight")
    assert (told["status"], told["error"]) == (503, "HTTP 503")
    if told["state"] == "retrying":
        assert moment(told["next_at"]) <= moment(told["last_at"]) + timedelta(milliseconds=200)
    again.set()
    told = await until(ingest, key, lambda told: told["state"] == "delivered", "delivered")
    assert (told["attempts"], told["status"], told["error"], told["next_at"]) == (2, 200, None, None)
    receiver.answers.append(Answer(400))
    [refused] = await fleet.post(ingest)
    told = await until(ingest, refused, lambda told: told["state"] == "dead", "dead")
    assert (told["attempts"], told["status"]) == (1, 400)


async def test_keys_are_paths(fleets: Fleets, valkey: Server) -> None:
    fleet = await fleets(valkey)
    ingest = await fleet.ingest()
    alert = {"host": "db 1/ä", "name": "disk~full", "timestamp": 1_764_438_120}
    _, told = await fleet.send(ingest, alert)
    key = told["key"]
    assert {":", "~"} < set(key)
    assert (await ask(ingest, key))[0] == 200
    assert (await ask(ingest, key.replace("~", "%7E").replace(":", "%3a")))[1]["key"] == key
    for unknown in (key + "0", "x" * 600, "%00", "%ff", "a%2Fb", "a%20b", "%C3%A4"):
        status, problem = await ask(ingest, unknown)
        assert (status, problem["status"]) == (404, 404), unknown
    async with ingest.http.post(f"{ingest.url}/v1/alerts/{key}") as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "GET")


async def test_a_destination_that_left_the_configuration_is_told_of(fleets: Fleets, valkey: Server) -> None:
    fleet = await fleets(valkey)
    ingest = await fleet.ingest()
    [key] = await fleet.post(ingest)
    valkey.cli("SADD", f"{{{NAMESPACE}}}:destinations", "gone", "never")
    record = valkey.cli("GET", f"{{{NAMESPACE}:{NAME}}}:record:{key}")
    valkey.cli("SET", f"{{{NAMESPACE}:gone}}:record:{key}", record)
    for _ in range(2):  # the second time it is known already
        _, told = await ask(ingest, key)
        assert [one["name"] for one in told["destinations"]] == [NAME, "gone"]


async def test_without_redis_it_is_503(fleets: Fleets, new_server: Callable[[], Server]) -> None:
    server = new_server()
    fleet = await fleets(server, redis={"timeout": "1s"})
    ingest = await fleet.ingest()
    [key] = await fleet.post(ingest)
    server.kill()
    async with ingest.http.get(f"{ingest.url}/v1/alerts/{key}") as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert await ingest.metric("redispatch_redis_errors_total") > 0
    server.restart()  # with nothing in it

    async def forgotten() -> bool:
        return (await ask(ingest, key))[0] == 404

    await eventually(forgotten, "an answer")


async def test_a_receipt_is_for_senders_alone(fleets: Fleets, valkey: Server) -> None:
    token = {"name": "agents", "sha256": sha256(b"secret").hexdigest()}
    fleet = await fleets(valkey, tokens=[token])
    ingest = await fleet.ingest()
    assert (await ask(ingest, "any"))[0] == 401
    async with ingest.http.get(
        f"{ingest.url}/v1/alerts/any", headers={"Authorization": "Bearer secret"}
    ) as answer:
        assert answer.status == 404
    for path in ("/openapi.json", "/docs", "/metrics"):
        assert await ingest.status(path) == 200

"""What two services say of a day on which much goes wrong: everything that matters, and no secret."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import aiohttp

from tests.support.processes import Process, Processes, wait_ready
from tests.support.receiver import Answer, Receiver, Request
from tests.support.servers import Server, free_port

SECRETS = {
    name: f"{name}-{hashlib.sha256(name.encode()).hexdigest()[:20]}"
    for name in (
        "redispassword",
        "tokentext",
        "urluser",
        "urlpassword",
        "urlquery",
        "headervalue",
        "wrongtoken",
    )
}
SIGNING = "whsec_c2lnbmluZ3NlY3JldHNpZ25pbmdzZWNyZXQ="
HOSTILE = 'disk\x1b[2J\u202e "full" '


def echo(request: Request) -> Answer:
    """A receiver that tells all it was told, in its error."""
    said = "\n".join(f"{name}: {value}" for name, value in request.headers.items())
    return Answer(500, body=said.encode() + b"\x1b[2J" + request.path.encode())


def config(redis: Server, listen: str, receiver: Receiver) -> dict[str, Any]:
    where = f"{SECRETS['urluser']}:{SECRETS['urlpassword']}@127.0.0.1:{receiver.port}"
    return {
        "redis": {
            "url": f"redis://:{SECRETS['redispassword']}@127.0.0.1:{redis.port}/0",
            "timeout": "10s",
        },
        "ingest": {"listen": listen},
        "dispatcher": {"listen": f"127.0.0.1:{free_port()}"},
        "tokens": [{"name": "agents", "sha256": hashlib.sha256(SECRETS["tokentext"].encode()).hexdigest()}],
        "destinations": [
            {
                "name": "hook",
                "type": "webhook",
                "url": f"http://{where}/?key={SECRETS['urlquery']}",
                "headers": {"X-Key": SECRETS["headervalue"]},
                "secrets": [SIGNING],
                "allow_private": True,
                "retry": {"preset": "page", "attempts": 2, "base": "10ms"},
            }
        ],
    }


def events(process: Process, name: str) -> list[dict[str, Any]]:
    return [told for told in map(json.loads, process.err) if told["event"] == name]


async def test_everything_that_matters_and_no_secret(
    processes: Processes, new_server: Callable[..., Server], receiver: Receiver
) -> None:
    redis = new_server("valkey")
    redis.cli("CONFIG", "SET", "requirepass", SECRETS["redispassword"])
    listen = f"127.0.0.1:{free_port()}"
    path = processes.config(config(redis, listen, receiver))
    ingest, dispatcher = await processes.ingest(path), await processes.dispatcher(path)
    await wait_ready(f"http://{listen}/readyz", ingest)
    receiver.default = echo
    async with aiohttp.ClientSession(f"http://{listen}") as http:

        async def post(token: str, body: bytes, where: str = "/v1/alerts") -> int:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            async with http.post(where, data=body, headers=headers) as answer:
                return answer.status

        good, wrong = SECRETS["tokentext"], SECRETS["wrongtoken"]
        assert await post(wrong, b"{}") == 401
        assert await post(good, b'[{"host":"h"},{"name":"x"}]') == 400
        assert await post(good, b"{}", "/v1/hooks/" + "x" * 300 + "%1b%5b2J") == 404
        assert await post(good, json.dumps({"host": "h", "name": HOSTILE}).encode()) == 400
        assert await post(good, json.dumps({"host": "h", "name": "x", "summary": HOSTILE}).encode()) == 201
        await dispatcher.wait_line('"decision":"dead"')
        receiver.default = Answer(204)
        assert await post(good, b'{"host":"h","name":"fine"}') == 201
        await dispatcher.wait_line('"decision":"delivered"')
        redis.kill()
        assert await post(good, b'{"host":"h","name":"x"}') == 503
    await ingest.wait_line('"event":"redis_trouble"')
    await dispatcher.wait_line('"event":"redis_trouble"')
    assert await ingest.stop() == 0
    await dispatcher.kill()  # with Redis away it would drain for long
    _refusals(events(ingest, "refused"))
    _attempts(events(dispatcher, "attempt"))
    for line in [*ingest.err, *dispatcher.err]:
        assert line.isprintable()
        assert not [name for name, secret in SECRETS.items() if secret in line]
        assert SIGNING[6:] not in line
    processes.assert_no_traceback()


def _refusals(refused: list[dict[str, Any]]) -> None:
    assert [(told["route"], told["code"], told.get("sender"), told.get("items")) for told in refused] == [
        ("/v1/alerts", 401, None, None),
        ("/v1/alerts", 400, "agents", 2),
        ("/v1/hooks/{name}", 404, "agents", None),
        ("/v1/alerts", 400, "agents", 1),
        ("/v1/alerts", 503, "agents", 1),
    ]
    for told in refused:
        assert (told["peer"], told["method"], told["level"]) == ("127.0.0.1", "POST", "warning")
        assert told["error"]
        assert told["seconds"] > 0


def _attempts(attempts: list[dict[str, Any]]) -> None:
    told = [(each["attempt"], each["outcome"], each["status"], each["decision"]) for each in attempts]
    assert told == [
        (1, "failed", 500, "later"),
        (2, "failed", 500, "dead"),
        (1, "delivered", 204, "delivered"),
    ]
    first, last, fine = attempts
    assert first["delay"] >= 0
    assert last["reason"] == "attempts"
    assert fine["end_to_end"] >= 0
    assert fine["key"].startswith(f"{fine['incident']}:")
    assert "***" in first["error"]

"""Signatures, verified by what receivers use: the standardwebhooks packages of PyPI and npm.

The latter is in tests/signatures; `npm ci --prefix tests/signatures` installs it. Without it a test is
skipped here, and fails when `CI` is in the environment.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from standardwebhooks import Webhook as Python
from standardwebhooks import WebhookVerificationError

from common.outcomes import Outcome, OutcomeKind
from common.units import Secret
from common.webhook_parts import signing_key
from dispatcher.destinations.kinds import make
from dispatcher.destinations.signing import signature
from tests.support.deliveries import alert, delivery, webhook
from tests.support.receiver import Receiver, Request

OLD = "whsec_" + "b2xk" * 8
NEW = "whsec_" + "bmV3" * 8
OTHER = "whsec_" + "b3Ro" * 8
# From the libraries of those who wrote Standard Webhooks, and from its specification.
VECTORS = [
    (
        "whsec_plJ3nmyCDGBKInavdOK15jsl",
        "msg_loFOjxBNrRLzqYUf",
        1_731_705_121,
        '{"event_type":"ping","data":{"success":true}}',
        "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
    ),
    (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        '{"test": 2432232314}',
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ),
]
Verify: TypeAlias = Callable[[list[tuple[str, Mapping[str, str], str]]], list[bool]]


def javascript(asked: list[dict[str, Any]]) -> list[str | None]:
    """What the npm package says of each."""
    here = Path(__file__).parents[1] / "signatures"
    if shutil.which("node") is None or not (here / "node_modules").is_dir():
        missing = "no npm package to verify with: npm ci --prefix tests/signatures"
        if "CI" in os.environ:
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    told = subprocess.run(
        ["node", str(here / "verify.js")], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    answers: list[str | None] = json.loads(told.stdout)
    return answers


def by_javascript(asked: list[tuple[str, Mapping[str, str], str]]) -> list[bool]:
    given = [{"secret": secret, "headers": dict(headers), "body": body} for secret, headers, body in asked]
    return [fault is None for fault in javascript(given)]


def by_python(asked: list[tuple[str, Mapping[str, str], str]]) -> list[bool]:
    return [_accepts(*each) for each in asked]


def _accepts(secret: str, headers: Mapping[str, str], body: str) -> bool:
    try:
        Python(secret).verify(body, dict(headers))
    except WebhookVerificationError:
        return False
    return True


def headers(request: Request) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


@pytest.fixture(params=[by_python, by_javascript], ids=["PyPI", "npm"])
def verify(request: pytest.FixtureRequest) -> Verify:
    way: Verify = request.param
    return way


async def sent(receiver: Receiver, *secrets: str) -> Request:
    one = make(webhook(receiver.url, secrets=[Secret(secret) for secret in secrets]))
    told = one.deliver(delivery(of=alert(host="päd 漢", summary='a "quoted"\n text ')))
    outcome = told if isinstance(told, Outcome) else await told
    await one.close()
    assert outcome.kind is OutcomeKind.DELIVERED
    return receiver.requests[-1]


async def test_a_receiver_accepts_what_is_delivered(receiver: Receiver, verify: Verify) -> None:
    request = await sent(receiver, NEW)
    body, told = request.body.decode(), headers(request)
    late = told | {"webhook-timestamp": str(int(told["webhook-timestamp"]) - 3600)}
    assert verify([(NEW, told, body)]) == [True]
    assert (
        verify(
            [
                (OTHER, told, body),
                (NEW, told, body.replace("disk", "dusk")),
                (NEW, told | {"webhook-id": "another"}, body),
                (NEW, late, body),
            ]
        )
        == [False] * 4
    )


async def test_while_a_secret_is_changed_both_are_accepted(receiver: Receiver, verify: Verify) -> None:
    request = await sent(receiver, NEW, OLD)
    body, told = request.body.decode(), headers(request)
    assert verify([(NEW, told, body), (OLD, told, body), (OTHER, told, body)]) == [True, True, False]


@pytest.mark.parametrize(("secret", "id_", "at", "body", "signed"), VECTORS)
def test_published_vectors(secret: str, id_: str, at: int, body: str, signed: str) -> None:
    assert signature([signing_key(Secret(secret))], id_, at, body.encode()) == signed
    assert Python(secret).sign(id_, datetime.fromtimestamp(at, UTC), body) == signed


@pytest.mark.parametrize(("secret", "id_", "at", "body", "signed"), VECTORS)
def test_published_vectors_by_javascript(secret: str, id_: str, at: int, body: str, signed: str) -> None:
    assert javascript([{"secret": secret, "sign": [id_, at], "body": body}]) == [signed]

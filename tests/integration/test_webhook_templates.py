"""Templates and batches on the wire: what a receiver gets of a hostile alert, and that it can verify it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from common.outcomes import Outcome, OutcomeKind
from common.units import Secret
from dispatcher.destinations.base import Delivery
from dispatcher.destinations.webhook import Webhook
from tests.support.deliveries import AT, alert, delivery, webhook
from tests.support.raw import OK, RawServer, answering
from tests.support.receiver import Receiver

SECRET = "whsec_" + "c2VjcmV0" * 8


async def send(url: str, *deliveries: Delivery, **settings: Any) -> Outcome:
    one = Webhook(webhook(url, **settings))
    outcome = await one.deliver_batch(deliveries)
    await one.close()
    return outcome


async def test_a_batch_arrives_signed_and_in_order() -> None:
    storm = [delivery(f"k{n}", of=alert(host=f"h{n}", timestamp=AT - n)) for n in range(3)]
    async with Receiver(secrets=(SECRET,)) as receiver:
        assert (await send(receiver.url, *storm, secrets=[Secret(SECRET)])).kind is OutcomeKind.DELIVERED
        (request,) = await receiver.wait_for(1)
    assert request.id.startswith("batch_")
    assert [one["key"] for one in request.json()["data"]["alerts"]] == ["k2", "k1", "k0"]


async def test_a_templates_body_arrives_signed() -> None:
    settings = {
        "template": Secret("{{ summary }}"),
        "headers": {"Content-Type": Secret("text/plain; charset=utf-8")},
        "secrets": [Secret(SECRET)],
    }
    summary = '"ü\u2028\\ \r\n{{ host }}'
    async with Receiver(secrets=(SECRET,)) as receiver:
        outcome = await send(receiver.url, delivery(of=alert(summary=summary)), **settings)
        assert outcome.kind is OutcomeKind.DELIVERED
        (request,) = await receiver.wait_for(1)
    assert request.body.decode() == summary
    assert request.headers.getall("content-type") == ["text/plain; charset=utf-8"]


@pytest.mark.parametrize(
    ("host", "line"),
    [
        ("päd 漢", "x-host: päd 漢"),
        ("", "x-host:"),
        ("a" * 4096, "x-host: " + "a" * 4096),
        ("a\r\nX-Evil: 1", None),
        ("a\nX-Evil: 1", None),
        ("a\0", None),
        ("a" * 20_000, None),
    ],
    ids=["utf-8", "empty", "long", "crlf", "lf", "nul", "too-long"],
)
async def test_no_alert_adds_a_header(host: str, line: str | None) -> None:
    async with RawServer(answering(OK)) as server:
        sent = delivery(of=alert(host=host))
        outcome = await send(server.url, sent, headers={"X-Host": Secret("{{ host }}")})
        heads = [request.head.decode() for request in server.requests]
    if line is None:
        assert (outcome.kind, heads) == (OutcomeKind.RENDER, [])
        assert "header x-host" in outcome.error
        return
    assert outcome.kind is OutcomeKind.DELIVERED
    lines = [each.rstrip() for each in heads[0].split("\r\n")]
    assert [each.lower() for each in lines].count(line.lower()) == 1
    assert not [each for each in lines if "evil" in each.lower()]


async def test_headers_made_by_percent_encoding_take_any_alert() -> None:
    async with RawServer(answering(OK)) as server:
        sent = delivery(of=alert(host="a\r\nX-Evil: 1"))
        await send(server.url, sent, headers={"X-Host": Secret("{{ host | urlencode }}")})
        (request,) = server.requests
    assert b"x-host: a%0d%0ax-evil%3a%201\r\n" in request.head.lower()
    assert json.loads(request.body)["data"]["host"] == "a\r\nX-Evil: 1"

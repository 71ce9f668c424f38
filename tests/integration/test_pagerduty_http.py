"""What PagerDuty's answers come to, from a server that gives them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from common.alert import Status
from common.outcomes import Outcome, OutcomeKind
from common.units import Secret
from dispatcher.destinations.pagerduty import PagerDuty, Settings, make
from tests.support.deliveries import alert, delivery
from tests.support.receiver import Answer, Receiver

KEY = "0123456789abcdef0123456789abcdef"
INVALID = (
    '{"status":"invalid event","message":"Event object is invalid","errors":["Length of \'x\' is wrong"]}'
)


@pytest.fixture
async def pagerduty(receiver: Receiver) -> AsyncIterator[PagerDuty]:
    """Speaks to the receiver."""
    url = Secret(receiver.url + "v2/enqueue")
    one = make(Settings(name="p", type="pagerduty", url=url, routing_key=Secret(KEY), allow_private=True))
    yield one
    await one.close()


async def test_accepted(pagerduty: PagerDuty, receiver: Receiver) -> None:
    receiver.default = Answer(
        202, body=b'{"status":"success","message":"Event processed","dedup_key":"db1:disk"}'
    )
    for status in Status:
        of = delivery(of=alert(status=status))
        assert await pagerduty.deliver(of) == Outcome(OutcomeKind.DELIVERED, 202)
    trigger, resolve = (request.json() for request in receiver.requests)
    assert (trigger["event_action"], resolve["event_action"]) == ("trigger", "resolve")
    assert trigger["dedup_key"] == resolve["dedup_key"] == "db1:disk"
    assert receiver.requests[0].path == "/v2/enqueue"
    assert receiver.requests[0].headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, OutcomeKind.REJECTED),
        (403, OutcomeKind.GONE),
        (404, OutcomeKind.GONE),
        (500, OutcomeKind.FAILED),
        (502, OutcomeKind.FAILED),
    ],
)
async def test_errors(pagerduty: PagerDuty, receiver: Receiver, status: int, kind: OutcomeKind) -> None:
    receiver.default = Answer(status, body=INVALID.encode())
    outcome = await pagerduty.deliver(delivery())
    assert outcome == Outcome(kind, status, f"HTTP {status}: {INVALID}")


@pytest.mark.parametrize(("headers", "after"), [({}, None), ({"Retry-After": "120"}, 120.0)])
async def test_throttled(
    pagerduty: PagerDuty, receiver: Receiver, headers: dict[str, str], after: float | None
) -> None:
    receiver.default = Answer(429, headers, b'{"status":"throttle exceeded"}')
    outcome = await pagerduty.deliver(delivery())
    assert (outcome.kind, outcome.retry_after) == (OutcomeKind.THROTTLED, after)


async def test_the_routing_key_is_not_told(pagerduty: PagerDuty, receiver: Receiver) -> None:
    receiver.default = Answer(400, body=f"no such routing_key: {KEY}".encode())
    outcome = await pagerduty.deliver(delivery())
    assert outcome.error == "HTTP 400: no such routing_key: ***"


async def test_a_huge_event_arrives_whole(pagerduty: PagerDuty, receiver: Receiver) -> None:
    receiver.default = Answer(202)
    of = alert(annotations={"log": "x" * 2**20})
    assert (await pagerduty.deliver(delivery(of=of))).kind is OutcomeKind.DELIVERED
    (request,) = receiver.requests
    assert len(request.body) <= 512_000
    assert request.json()["payload"]["custom_details"]["truncated"] is True


async def test_what_cannot_be_built_is_not_sent(pagerduty: PagerDuty, receiver: Receiver) -> None:
    outcome = await pagerduty.deliver(delivery(of=alert(timestamp=10**17)))
    assert outcome.kind is OutcomeKind.RENDER
    assert receiver.requests == []

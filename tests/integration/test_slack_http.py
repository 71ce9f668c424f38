"""What Slack's answers come to, from a server that gives them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from common.outcomes import Outcome, OutcomeKind
from common.units import Duration, Secret
from dispatcher.destinations.slack import Settings, Slack, make
from tests.support.deliveries import alert, delivery
from tests.support.raw import RawServer, answering
from tests.support.receiver import Answer, Receiver

TOKEN = "T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX"
New = Callable[..., Slack]


@pytest.fixture
async def new() -> AsyncIterator[New]:
    """`new(url)`: a Slack destination, closed when the test is over."""
    made: list[Slack] = []

    def build(url: str, timeout: float = 10) -> Slack:
        made.append(
            make(
                Settings(
                    name="chat",
                    type="slack",
                    url=Secret(url),
                    allow_private=True,
                    timeout=Duration(timeout),
                )
            )
        )
        return made[-1]

    yield build
    for one in made:
        await one.close()


async def said(new: New, receiver: Receiver, status: int, body: str, **headers: str) -> Outcome:
    receiver.answers.append(Answer(status, headers, body.encode()))
    return await new(receiver.url + "services/" + TOKEN).deliver(delivery())


async def test_ok(new: New, receiver: Receiver) -> None:
    assert await said(new, receiver, 200, "ok") == Outcome(OutcomeKind.DELIVERED, 200)
    (request,) = receiver.requests
    assert request.headers["Content-Type"] == "application/json"
    assert request.json()["text"] == "FIRING disk on db1"


async def test_a_batch_is_one_request(new: New, receiver: Receiver) -> None:
    receiver.default = Answer(body=b"ok\n")
    two = [delivery(), delivery(of=alert(name="load"))]
    outcome = await new(receiver.url).deliver_batch(two)
    assert outcome.kind is OutcomeKind.DELIVERED
    (request,) = receiver.requests
    assert request.json()["text"].startswith("2 alerts: 2 firing, 0 resolved")


@pytest.mark.parametrize("body", ["", "no_text", '{"ok":false}', "<html>Sign in</html>", "ok?"])
async def test_a_200_that_is_not_ok_is_permanent_and_named(new: New, receiver: Receiver, body: str) -> None:
    outcome = await said(new, receiver, 200, body)
    assert outcome.kind is OutcomeKind.REJECTED
    assert outcome.error == f"HTTP 200, but not `ok`; it said: {body or 'nothing'}"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, "invalid_payload", OutcomeKind.REJECTED),
        (400, "user_not_found", OutcomeKind.REJECTED),
        (403, "action_prohibited", OutcomeKind.GONE),
        (404, "channel_not_found", OutcomeKind.GONE),
        (404, "no_service", OutcomeKind.GONE),
        (410, "channel_is_archived", OutcomeKind.GONE),
        (500, "rollup_error", OutcomeKind.FAILED),
        (503, "", OutcomeKind.FAILED),
        (302, "", OutcomeKind.FAILED),
    ],
)
async def test_errors_keep_slacks_word(
    new: New, receiver: Receiver, status: int, body: str, kind: OutcomeKind
) -> None:
    outcome = await said(new, receiver, status, body)
    assert (outcome.kind, outcome.status) == (kind, status)
    assert outcome.error == (f"HTTP {status}: {body}" if body else f"HTTP {status}")


async def test_rate_limit(new: New, receiver: Receiver) -> None:
    outcome = await said(new, receiver, 429, "rate_limited", **{"Retry-After": "30"})
    assert (outcome.kind, outcome.retry_after) == (OutcomeKind.THROTTLED, 30.0)


async def test_no_token_is_told(new: New, receiver: Receiver) -> None:
    outcome = await said(new, receiver, 200, f"no such hook: /services/{TOKEN}, {TOKEN[-24:]}")
    assert TOKEN[-24:] not in outcome.error
    assert "***" in outcome.error


async def test_an_answer_that_breaks_off_is_tried_again(new: New) -> None:
    for part, kind in ((b"", OutcomeKind.FAILED), (b"o", OutcomeKind.FAILED), (b"no", OutcomeKind.REJECTED)):
        raw = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n" + part
        async with RawServer(answering(raw)) as server:
            outcome = await new(server.url, timeout=1).deliver(delivery())
        assert (outcome.kind, outcome.status) == (kind, 200), part


async def test_what_cannot_be_built_and_what_is_not_there(new: New) -> None:
    async with RawServer(answering(b"")) as server:
        outcome = await new(server.url).deliver(delivery(of=alert(timestamp=10**17)))
        assert outcome.kind is OutcomeKind.RENDER
        assert server.connections == 0
        url = server.url
    assert (await new(url).deliver(delivery())).kind is OutcomeKind.CONNECTION

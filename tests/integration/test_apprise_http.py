"""What arrives at a json:// service of Apprise, what failures come to, what hangs and what ends."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import Any

import pytest

from common.alert import Status
from common.outcomes import Outcome, OutcomeKind
from common.units import Duration, Secret
from dispatcher.destinations import apprise
from dispatcher.destinations.apprise import Apprise, Settings, make
from tests.support.deliveries import alert, delivery
from tests.support.receiver import Answer, Receiver

TOKEN = "abcdefgh-ijkl"
DEADLINE = 30.0


def new(*receivers: Receiver, **settings: Any) -> Apprise:
    urls = [Secret(f"json://user:{TOKEN}@127.0.0.1:{receiver.port}/") for receiver in receivers]
    given: dict[str, Any] = {"name": "phone", "type": "apprise", "urls": urls}
    return make(Settings(**given | settings))


@pytest.mark.parametrize(
    ("severity", "status", "mood"),
    [
        ("critical", Status.FIRING, "failure"),
        ("warning", Status.FIRING, "warning"),
        ("info", Status.FIRING, "info"),
        ("critical", Status.RESOLVED, "success"),
    ],
)
async def test_what_arrives(receiver: Receiver, severity: str, status: Status, mood: str) -> None:
    of = alert(severity=severity, status=status, summary="a <b> & c\n{x} :smile:")
    assert await new(receiver).deliver(delivery(of=of)) == Outcome(OutcomeKind.DELIVERED)
    (request,) = receiver.requests
    said = request.json()
    assert said["title"] == f"[{'RESOLVED' if status is Status.RESOLVED else severity.upper()}] disk on db1"
    assert said["message"] == "a <b> & c\n{x} :smile:"
    assert said["type"] == mood
    assert request.headers["User-Agent"] == "redispatch"


async def test_a_failure_says_why_and_hides_the_token(
    receiver: Receiver, capfd: pytest.CaptureFixture[str]
) -> None:
    receiver.default = Answer(500, body=TOKEN.encode())
    outcome = await new(receiver).deliver(delivery())
    assert outcome.kind is OutcomeKind.FAILED
    assert outcome.error.startswith("urls[0]: Failed to send JSON")
    assert "500" in outcome.error
    for told in (outcome.error, *capfd.readouterr()):
        assert TOKEN not in told
    assert logging.getLogger("apprise").propagate is False


async def test_a_token_in_what_it_says_is_masked(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apprise, "send", lambda url, notification: f"no luck with {url}, {TOKEN}, abcdefgh")
    outcome = await new(receiver).deliver(delivery())
    assert outcome.error == "urls[0]: no luck with ***, ***, abcdefgh"


async def test_nobody_listens(receiver: Receiver) -> None:
    one = new(receiver)
    await receiver.stop()
    outcome = await one.deliver(delivery())
    assert outcome.kind is OutcomeKind.FAILED
    assert "Connection error" in outcome.error


async def test_one_that_fails_does_not_keep_it_from_the_others(receiver: Receiver) -> None:
    async with Receiver() as other:
        receiver.default = Answer(404)
        outcome = await new(receiver, other).deliver(delivery())
        assert outcome.kind is OutcomeKind.FAILED
        assert "urls[0]" in outcome.error
        assert "urls[1]" not in outcome.error
        assert len(other.requests) == 1


async def test_what_hangs_is_a_timeout_and_keeps_its_thread(receiver: Receiver) -> None:
    release = asyncio.Event()
    receiver.default = Answer(until=release)
    one = new(receiver, timeout=Duration(0.2), max_in_flight=2)
    outcomes = await asyncio.gather(*[one.deliver(delivery()) for _ in range(5)])
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.TIMEOUT] * 5
    assert outcomes[0].error == "not done within 200ms, 2 threads are still at work"
    assert len(await receiver.wait_for(2)) == len(receiver.requests) == 2
    release.set()
    await receiver.wait_answered(2)
    receiver.default = Answer()
    async with asyncio.timeout(DEADLINE):
        while (await one.deliver(delivery())).kind is not OutcomeKind.DELIVERED:
            pass
    await one.close()


async def test_a_process_ends_while_a_service_hangs(receiver: Receiver) -> None:
    receiver.default = Answer(until=asyncio.Event())
    code = f"""
import asyncio
from common.units import Duration, Secret
from dispatcher.destinations import kinds
from tests.support.deliveries import delivery

Settings = kinds.settings("apprise")
urls = [Secret("json://127.0.0.1:{receiver.port}/?rto=300")]
one = kinds.make(Settings(name="a", type="apprise", urls=urls, timeout=Duration(0.5)))
print(asyncio.run(one.deliver(delivery())).kind)
"""
    run = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "timeout\n", "")

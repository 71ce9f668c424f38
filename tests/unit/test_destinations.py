from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from common.outcomes import Outcome, OutcomeKind
from common.settings import Destination
from common.units import Secret
from dispatcher.destinations.answer import excerpt
from dispatcher.destinations.base import DestinationType, Unusable
from dispatcher.destinations.kinds import make
from dispatcher.destinations.payload import body
from dispatcher.destinations.request import target
from dispatcher.destinations.webhook import Settings, Webhook
from tests.support.deliveries import alert, delivery, webhook


def at_once(one: DestinationType) -> Outcome:
    outcome = one.deliver(delivery())
    assert isinstance(outcome, Outcome)
    return outcome


def test_discard_takes_all_and_makes_nothing() -> None:
    one = make(Destination(name="none", type="discard"))
    assert at_once(one) == Outcome(OutcomeKind.DELIVERED)
    assert at_once(one) is at_once(one)


def test_stdout_prints_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    one = make(Destination(name="out", type="stdout"))
    assert at_once(one) == Outcome(OutcomeKind.DELIVERED)
    assert at_once(one) is at_once(one)
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 3
    assert json.loads(lines[0]) == {"key": "db1:disk:1"} | json.loads(body(delivery()))


def test_stdout_that_cannot_be_rendered() -> None:
    outcome = make(Destination(name="out", type="stdout")).deliver(delivery(of=alert(host="\ud800")))
    assert isinstance(outcome, Outcome)
    assert outcome.kind is OutcomeKind.RENDER


@pytest.mark.parametrize("state", ["broken", "closed", "absent"])
def test_stdout_that_is_gone_is_a_failure(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    read, write = os.pipe()
    out = os.fdopen(write, "w")
    os.close(read)
    if state == "closed":
        out.close()
    monkeypatch.setattr(sys, "stdout", None if state == "absent" else out)
    outcome = at_once(make(Destination(name="out", type="stdout")))
    out.close()
    assert outcome.kind is OutcomeKind.FAILED
    assert outcome.error.startswith("standard output: ")


def test_webhook() -> None:
    assert isinstance(make(webhook()), Webhook)


GOOD: dict[str, Any] = {"name": "pager", "type": "webhook", "url": Secret("http://h.example/")}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "type": ({"type": "pigeon"}, "type 'pigeon' is not one of webhook, slack"),
    "no url": ({"url": None}, "url: is missing"),
    "no host": ({"url": Secret("http:///hidden")}, "url: expected http://host/... or https://host/..."),
    "no url at all": ({"url": Secret("hidden")}, "url: expected http://host/... or https://host/..."),
    "other scheme": ({"url": Secret("ftp://h/hidden")}, "url: expected http://host/... or https://host/..."),
    "unreadable": ({"url": Secret("http://[hidden/")}, "url: can't be read as a URL"),
    "port": ({"url": Secret("http://h:99999/hidden")}, "url: can't be read as a URL"),
    "header name": ({"headers": {"a b": Secret("hidden")}}, "headers.a b: is no name of a header"),
    "header line": (
        {"headers": {"X-A": Secret("hidden\r\nX-Evil: 1")}},
        "headers.X-A: holds a line break or another control character",
    ),
    "header end": (
        {"headers": {"X-A": Secret("hidden\n")}},
        "headers.X-A: holds a line break or another control character",
    ),
    "our header": ({"headers": {"Webhook-Id": Secret("hidden")}}, "headers.Webhook-Id: is set by redispatch"),
    "framing": ({"headers": {"Content-Length": Secret("1")}}, "headers.Content-Length: is set by redispatch"),
    "secret": (
        {"secrets": [Secret("fine"), Secret("whsec_h!dden")]},
        "secrets[1]: what follows whsec_ is not",
    ),
    "two passwords": (
        {"url": Secret("http://me:hidden@h/"), "headers": {"Authorization": Secret("hidden")}},
        "headers.Authorization: the url has a user name or password as well",
    ),
}


@pytest.mark.parametrize(("settings", "says"), BAD.values(), ids=list(BAD))
def test_settings_that_cannot_be_used_are_named_and_not_shown(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(Unusable) as raised:
        make(Settings(**GOOD | settings))
    assert str(raised.value).startswith(f"destination pager: {says}")
    assert "hidden" not in str(raised.value)
    assert "h!dden" not in str(raised.value)


def test_masking_takes_the_longest_secret_first() -> None:
    settings = webhook(
        "https://me:pass-word@h.example/T/0123456789abcdefg?token=abcdefgh",
        headers={"X-Key": Secret("Token key-key-key")},
        secrets=[Secret("whsec_c2VjcmV0c2VjcmV0")],
    )
    known = target(settings, {}, ["c2VjcmV0c2VjcmV0", "whsec_c2VjcmV0c2VjcmV0"]).secrets
    told = "0123456789abcdefg abcdefgh pass-word key-key-key Token /T/0123456789abcdefg?token=abcdefgh"
    assert excerpt(told.encode(), known) == "*** *** *** *** Token ***"
    assert excerpt(b"whsec_c2VjcmV0c2VjcmV0 c2VjcmV0c2VjcmV0", known) == "*** ***"


def test_a_destination_shows_no_secret() -> None:
    settings = webhook("http://me:hidden@[::1]:81/hidden", secrets=[Secret("hidden")])
    assert "hidden" not in repr(make(settings))
    assert repr(target(settings, {}, [])) == "Target([::1]:81)"


def test_only_what_is_used_is_imported() -> None:
    code = "import sys; from dispatcher.destinations.kinds import make; "
    code += "from common.settings import Destination; make(Destination(name='n', type='discard')); "
    code += "sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

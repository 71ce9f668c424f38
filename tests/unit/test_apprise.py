"""Settings of apprise and what it says; what arrives is in tests/integration/test_apprise_http.py."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from common.alert import Status
from common.outcomes import OutcomeKind
from common.units import Secret
from dispatcher.destinations import apprise, kinds
from dispatcher.destinations.apprise import Apprise, Settings
from dispatcher.destinations.base import Unusable
from tests.support.deliveries import alert, delivery


def settings(*urls: str, **more: Any) -> Settings:
    given: dict[str, Any] = {"name": "phone", "type": "apprise", "urls": [Secret(url) for url in urls]}
    return Settings(**given | more)


JSON = "json://127.0.0.1:1/"


def texts(of: Any, **more: Any) -> tuple[str, str]:
    made = json.loads(Apprise(settings(JSON, **more)).request([delivery(of=of)]).body)
    return made["title"], made["body"]


def test_the_usual_texts() -> None:
    of = alert(
        severity="critical",
        summary="disk at 97 %",
        value=97.5,
        labels={"mount": "/var", "env": "prod"},
        annotations={"ai_summary": "as last week"},
        url="https://g.example/",
    )
    body = "disk at 97 %\nas last week\nValue: 97.5\nenv=prod, mount=/var\nhttps://g.example/"
    assert texts(of) == ("[CRITICAL] disk on db1", body)
    assert texts(alert(status=Status.RESOLVED, severity="critical")) == (
        "[RESOLVED] disk on db1",
        "disk on db1",
    )
    assert texts(alert(host="")) == ("[FIRING] disk", "disk")


def test_huge_and_odd_texts_are_cut() -> None:
    for text in ("x", "\ud800", "漢", "\n"):
        huge = text * 2**20
        labels = {f"{n}{text}": huge for n in range(100)}
        title, body = texts(alert(host=huge, name=huge, summary=huge, severity=huge, labels=labels, url=huge))
        assert 0 < len(title) <= 350
        assert 0 < len(body) <= 4000
        (title + body).encode()


def test_templates() -> None:
    of = alert(summary="full")
    title, body = Secret("{{ name }}!"), Secret("{{ summary }} on {{ host }}")
    assert texts(of, title=title, body=body) == ("disk!", "full on db1")


async def test_what_cannot_be_built() -> None:
    one = Apprise(settings(JSON, body=Secret("{{ 'x' if name != 'disk' }}")))
    outcome = await one.deliver(delivery())
    assert (outcome.kind, outcome.error) == (
        OutcomeKind.RENDER,
        "the notification can't be built: the body's template makes no text",
    )


def test_faults_and_warnings() -> None:
    one = settings(JSON, "nonsense://hidden", title=Secret("{{ nam }}"), body=Secret("{% if %}"))
    told = dict(kinds.faults(one))
    assert told["urls", 1] == "Apprise can't read it"
    assert "nam is unknown; did you mean name?" in told["title",]
    assert ("body",) in told
    ((_, empty),) = kinds.faults(settings(JSON, body=Secret("{{ summary }}")))
    assert empty == "makes no text (with an alert that has only what is required)"
    assert dict(kinds.warnings(one)) == {
        ("urls",): "when one of them fails, all are notified again; a destination for each is safer"
    }
    assert list(kinds.warnings(settings(JSON))) == list(kinds.faults(settings(JSON))) == []
    with pytest.raises(Unusable, match=r"^destination phone: urls\[1\]: Apprise can't read it$"):
        kinds.make(settings(JSON, "nonsense://hidden"))


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apprise, "find_spec", lambda name: None)
    says = 'needs what does not come by itself: pip install "redispatch[apprise]"'
    assert list(kinds.faults(settings(JSON))) == [(("type",), says)]
    with pytest.raises(Unusable) as raised:
        kinds.make(settings(JSON))
    assert str(raised.value) == f"destination phone: type: {says}"


def test_it_is_imported_when_it_is_used() -> None:
    code = """
import sys
from common.units import Secret
from dispatcher.destinations import kinds
Settings = kinds.settings("apprise")
assert "apprise" not in sys.modules
kinds.make(Settings(name="a", type="apprise", urls=[Secret("json://127.0.0.1:1/")]))
sys.exit("apprise" not in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

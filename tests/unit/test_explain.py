"""`redispatch explain`: what it tells, what it hides, and one line for each mistake."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from common.config import load
from common.settings import Settings
from dispatcher.destinations import kinds
from dispatcher.destinations.signing import signature
from ops.cli import main
from ops.dry_run import NotOne, Told, dry_run
from ops.text import span

NOW = 1_795_986_120_000
CONFIG = """
rules:
  - {name: disk-full, metric: disk, when: ">= 100", clear: "< 90", severity: critical, summary: "{value}"}
  - {name: disk-high, metric: disk, when: "> 80", labels: {mount: /var}}
  - {name: hot, metric: temperature, when: "> 90"}
destinations:
  - name: pager
    type: webhook
    url: "https://me:url-pass-word@incident.example:8443/hooks/url-token?key=url-query"
    secrets: ["first-secret-first-secret-first-secret", "whsec_c2Vjb25kLXNlY3JldC1zZWNvbmQtc2VjcmV0"]
    headers: {X-Key: "Token header-secret", X-Host: "{{ host }}", Content-Type: text/plain}
    template: "{{ host }}: {{ summary or 'nothing' }}"
    retry: {attempts: 4, base: 10s, cap: 15s, max_age: 40s}
    timeout: 5s
    rate: 30/m
  - {name: terminal, type: stdout}
routes:
  - {match: {severity: [critical, error], labels: {team: ops}}, to: [pager], continue: true}
  - {match: {severity: info}, to: [pager]}
  - {match: {host: web-1}, to: [terminal]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "redispatch.yaml"
    file.write_text(CONFIG, "utf-8")
    return file


@pytest.fixture
def settings(file: Path) -> Settings:
    return load(str(file), {}, kinds)


def one(settings: Settings, **fields: Any) -> Told:
    """The one alert that comes of a body."""
    body = {"host": "web-1", "name": "disk-full", "timestamp": NOW / 1000} | fields
    (told,) = dry_run(settings, json.dumps(body).encode(), NOW).alerts
    return told


def run(file: Path, body: object, *words: str) -> Result:
    runner = CliRunner(env={"REDISPATCH_CONFIG": str(file)})
    return runner.invoke(main, ["explain", *words, "-"], body if isinstance(body, str) else json.dumps(body))


def test_incident_key_and_routes(settings: Settings) -> None:
    told = one(settings, severity="critical", labels={"team": "ops"})
    assert told.incident.startswith("web-1:disk-full:")
    assert told.key == told.alert.key == f"{told.incident}:{NOW // 60_000}:critical"
    assert [(look.index, look.field, look.goes_on) for look in told.routes] == [
        (0, "", True),
        (1, "severity", False),
        (2, "", False),
    ]
    assert [sent.name for sent in told.destinations] == ["pager", "terminal"]
    assert one(settings, host="web-2").destinations == []


def test_keys_of_episodes(settings: Settings) -> None:
    start = NOW - 60_000
    assert one(settings, starts_at=start).key == f"web-1:disk-full:{start}"
    resolved = one(settings, starts_at=start, status="resolved", ends_at=NOW)
    assert resolved.key == f"web-1:disk-full:{start}:resolved"
    assert one(settings, status="resolved").key == f"web-1:disk-full:{NOW // 60_000}:resolved"


def test_the_request_is_signed_and_shows_no_secret(settings: Settings) -> None:
    summary = "header-secret and first-secret-first-secret-first-secret"
    sent = one(settings, severity="info", summary=summary).destinations[0]
    request = sent.request
    assert request is not None
    assert (request.method, request.url) == ("POST", "https://incident.example:8443/***")
    assert request.body == "web-1: *** and ***"
    headers = request.headers
    assert [headers[name] for name in ("x-key", "authorization", "x-host")] == ["***", "***", "web-1"]
    assert headers["content-type"] == "text/plain"
    keys = [b"first-secret-first-secret-first-secret", b"second-secret-second-secret"]
    at = int(headers["webhook-timestamp"])
    body = f"web-1: {summary}".encode()
    assert headers["webhook-signature"] == signature(keys, headers["webhook-id"], at, body)
    assert "pass" not in repr(request)
    assert "url-" not in repr(request)


def test_a_type_that_tells_nothing_and_a_request_that_cannot_be_built(settings: Settings) -> None:
    (terminal,) = one(settings).destinations
    assert (terminal.request, terminal.note) == (None, "the type stdout does not tell what it sends")
    pager = one(settings, severity="info", host="päd\u200b漢").destinations[0]
    assert pager.request is None
    assert pager.note.startswith(
        "the request can't be built, and the delivery would die as `render`: header x-host"
    )


def test_how_hard_it_is_tried(settings: Settings) -> None:
    sent = one(settings, severity="info").destinations[0]
    assert (sent.timeout, sent.rate, sent.attempts, sent.max_age) == (5.0, 0.5, 4, 40.0)
    told = [(slot.wait, slot.capped, slot.expected, slot.latest, slot.within) for slot in sent.timeline]
    assert told == [
        (0, False, 0, 0, True),
        (10, False, 5, 15, True),
        (15, True, 12.5, 35, True),
        (15, True, 20, 40, False),
    ]
    assert sent.ends_by == 45


@pytest.mark.parametrize(
    ("value", "labels", "verdicts", "made"),
    [
        (100, {}, ["fires", None, None], ["firing"]),
        (95, {"mount": "/var"}, ["between", "fires", None], ["firing"]),
        (80, {"mount": "/var"}, ["clears", None, None], ["resolved"]),
        (120, {"mount": "/var"}, ["fires", "fires", None], ["firing", "firing"]),
    ],
)
def test_a_reading(
    settings: Settings, value: int, labels: dict[str, str], verdicts: list[str | None], made: list[str]
) -> None:
    body = json.dumps({"host": "web-1", "metric": "disk", "value": value, "labels": labels}).encode()
    told = dry_run(settings, body, NOW)
    assert [rule.verdict for rule in told.rules] == verdicts
    assert [alert.status for alert in told.alerts] == made
    assert told.reading is not None
    assert told.alerts[0].alert.value == value


def test_why_rules_say_nothing(settings: Settings) -> None:
    body = b'{"host": "web-1", "metric": "disk", "value": 70}'
    assert [rule.because for rule in dry_run(settings, body, NOW).rules] == [
        "",
        "wants the label mount=/var",
        "is about the metric temperature",
    ]
    body = b'{"host": "web-1", "metric": "temperature", "value": 70}'
    assert dry_run(settings, body, NOW).rules[2].because == "70 is not > 90"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "the body is empty"),
        ('{"host": "a"', "Input data was truncated"),
        ('{"host": "a"}', "name: missing"),
        ('{"host": "a", "metric": "m"}', "value: missing (or percent)"),
        ('{"host": "a", "name": "n", "timestamp": -1}', "timestamp: "),
        ("[]", "holds 0 items; explain takes one"),
        ('[{"host": "a", "name": "n"}, {}]', "holds 2 items; explain takes one"),
        ("[" * 5000, "nested too deeply"),
    ],
)
def test_a_body_that_is_none(settings: Settings, file: Path, body: str, says: str) -> None:
    with pytest.raises(NotOne, match=re.escape(says)):
        dry_run(settings, body.encode(), NOW)
    result = run(file, body)
    assert result.exit_code == 1
    assert result.output.startswith("Error: standard input: ")
    assert result.output.count("\n") == 1


def test_for_people(file: Path) -> None:
    alert = {"host": "web-1", "name": "disk-full", "severity": "info", "summary": "\x1b[31mred"}
    result = run(file, alert)
    assert result.exit_code == 0
    shown = result.output.split("\n")
    assert "routes[0]    to pager: no, severity is info, not critical or error" in shown
    assert "routes[1]    to pager: matches" in shown
    assert "  web-1: \\x1b[31mred" in shown
    slot = "          4          15s        0s         20s         40s"
    assert f"{slot}  cap, may be later than max_age, and not made" in shown
    assert "  attempts: at most 5s each, 64 at once per replica, 30/m in the whole fleet" in shown
    assert "\x1b" not in result.output
    assert "secret" not in result.output


def test_as_json(file: Path, tmp_path: Path) -> None:
    body = tmp_path / "reading.json"
    body.write_text('{"host": "web-1", "metric": "disk", "percent": 100}')
    result = CliRunner(env={"REDISPATCH_CONFIG": str(file)}).invoke(main, ["explain", "--json", str(body)])
    told = json.loads(result.output)
    assert told["rules"][0] == {"index": 0, "name": "disk-full", "verdict": "fires", "because": ""}
    (alert,) = told["alerts"]
    assert alert["destinations"][0]["timeline"][0]["attempt"] == 1
    assert alert["destinations"][0]["breaker"] == {"failures": 10, "open": 30.0}
    assert "secret" not in result.output


def test_what_goes_on_from_a_destination(tmp_path: Path) -> None:
    file = tmp_path / "redispatch.yaml"
    model = "{name: model, type: summary, url: 'http://m/', model: m, then: [out], api_key: key-key-key}"
    file.write_text(f"destinations: [{model}, {{name: out, type: stdout}}]\nroutes: [{{to: [model]}}]")
    shown = run(file, {"host": "x", "name": "n"}).output
    assert "  what it makes of it goes on to out\n" in shown
    assert "  authorization: ***\n" in shown


def test_what_nobody_takes(file: Path) -> None:
    assert "no route takes it: ingest would answer 400" in run(file, {"host": "x", "name": "n"}).output
    silent = run(file, {"host": "x", "metric": "m", "value": 1}).output
    assert "no alert comes of it; the reading is stored" in silent
    assert silent.endswith("not known without Redis:\n  - nothing\n")


def test_a_file_that_is_not_there(file: Path) -> None:
    result = CliRunner(env={"REDISPATCH_CONFIG": str(file)}).invoke(main, ["explain", "nowhere.json"])
    assert (result.exit_code, result.output) == (1, "Error: nowhere.json: no such file or directory\n")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.25, "0.25s"), (59.9999, "1m"), (60, "1m"), (3725.5, "1h2m5.5s"), (76 * 3600, "76h")],
)
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text

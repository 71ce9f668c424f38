"""Hooks: those that the documentation shows, on samples of what their senders post; and what can go wrong."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from common.alert import Alert, Status
from common.config import ConfigError, load
from common.settings import Hook, HookAlert, HookReading
from ingest.event import Event, Reading
from ingest.formats.bodies import BadBody, Parsed
from ingest.formats.hook import Mapped
from tests.rules.pages import DOCS
from tests.support.samples import JSON, payload

NOW = 1_772_439_300_000
LIMIT = 1024**2
LINES = {"Content-Type": "application/x-ndjson"}


@pytest.fixture
def shown(tmp_path: Path) -> dict[str, Mapped]:
    """The hooks of docs/formats.md, loaded as a configuration."""
    page = (DOCS / "formats.md").read_text("utf-8")
    [text] = re.findall(r"^```yaml\n(hooks:\n.*?)^```", page, re.DOTALL | re.MULTILINE)
    file = tmp_path / "redispatch.yaml"
    file.write_text(text, encoding="utf-8")
    return {hook.name: Mapped(hook) for hook in load(str(file), {}).hooks}


def read(hook: Mapped, body: object, headers: Any = JSON) -> Parsed[Event | Reading]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return hook.reader(CIMultiDict(headers))(raw, NOW, LIMIT)


def alerts(parsed: Parsed[Event | Reading]) -> list[Alert]:
    assert parsed.rejected == []
    found = [item.alert for _, item in parsed.items if isinstance(item, Event)]
    assert len(found) == len(parsed.items)
    return found


def values(parsed: Parsed[Event | Reading]) -> list[tuple[Any, ...]]:
    assert parsed.rejected == []
    found = [item for _, item in parsed.items if isinstance(item, Reading)]
    return [(item.host, item.metric, item.value, item.timestamp, item.labels) for item in found]


def test_uptime_kuma(shown: dict[str, Mapped]) -> None:
    hook = shown["uptime-kuma"]
    [down] = alerts(read(hook, payload("uptime-kuma-webhook-down.json")))
    assert (down.host, down.name, down.status) == ("shop front", "monitor-down", Status.FIRING)
    assert down.timestamp == 1_772_439_277_482  # without a zone: UTC
    assert (down.severity, down.source, down.labels) == ("critical", "hook", {"monitor": "shop front"})
    kind = "multipart/form-data; boundary=------------------------1a2b3c"
    form = payload("uptime-kuma-webhook-form-data.txt")
    [up] = alerts(read(hook, form, {"Content-Type": kind}))
    assert (up.incident, up.status) == (down.incident, Status.RESOLVED)


def test_uptime_kumas_test_button_makes_no_alert(shown: dict[str, Mapped]) -> None:
    assert alerts(read(shown["uptime-kuma"], payload("uptime-kuma-webhook-test.json"))) == []


def test_zabbix(shown: dict[str, Mapped]) -> None:
    parsed = read(shown["zabbix"], payload("zabbix-stream-item-values.ndjson"), LINES)
    name = "Load average (1m avg)"
    assert values(parsed) == [
        ("node-01", name, 0.42, 1_772_439_277_000, {}),
        ("node-03", name, 18_446_744_073_709_551_615, 1_772_439_279_000, {}),
    ]


def test_zabbix_cut_off(shown: dict[str, Mapped]) -> None:
    parsed = read(shown["zabbix"], payload("zabbix-stream-item-values.ndjson")[:-20], LINES)
    assert [(rejected.index, rejected.line) for rejected in parsed.rejected] == [(2, 3)]


def test_datadog(shown: dict[str, Mapped]) -> None:
    hook = shown["datadog"]
    told = json.loads(payload("datadog-webhook-custom.json"))
    [firing] = alerts(read(hook, told))
    assert (firing.host, firing.name, firing.severity) == ("node-01", "monitor-1234", "error")
    assert firing.timestamp == 1_772_439_277_000
    [over] = alerts(read(hook, {**told, "alert_transition": "Recovered"}))
    assert (over.incident, over.status) == (firing.incident, Status.RESOLVED)
    [default] = alerts(read(hook, payload("datadog-webhook-default.json")))
    assert (default.host, default.status) == ("Example Org", Status.FIRING)
    assert default.summary == "[Triggered] CPU high on node-01"


@pytest.mark.parametrize(
    ("name", "headers"),
    [
        ("nagios-nrdp-checkresults.json", JSON),
        ("nagios-nrdp-form.txt", {"Content-Type": "application/x-www-form-urlencoded"}),
    ],
)
def test_nagios(shown: dict[str, Mapped], name: str, headers: dict[str, str]) -> None:
    assert values(read(shown["nagios"], payload(name), headers)) == [
        ("node-01", "nagios", 2, NOW, {"service": "HTTP"}),
        ("node-02", "nagios", 0, NOW, {"service": "host"}),
    ]


def plain(**fields: Any) -> Mapped:
    return Mapped(Hook(name="h", alert=HookAlert(host="host", name="name", **fields)))


def test_every_field_can_be_mapped() -> None:
    fields = {name: name for name in ("severity", "status", "summary", "value", "url")}
    times = {name: name for name in ("timestamp", "starts_at", "ends_at")}
    hook = plain(**fields, **times, labels={"a": "x"}, annotations={"b": "x", "c": "list", "d": "absent"})
    told = {
        "host": "h",
        "name": "n",
        "severity": "info",
        "status": "resolved",
        "summary": "s",
        "value": "7",
        "url": "http://x",
        "timestamp": "1772439277000",
        "starts_at": 1772439270,
        "x": 5,
        "list": [1, "a"],
        "ends_at": "2026-03-02T08:14:37Z",
    }
    [alert] = alerts(read(hook, told))
    assert (alert.value, alert.timestamp, alert.starts_at) == (7, 1_772_439_277_000, 1_772_439_270_000)
    assert alert.ends_at == 1_772_439_277_000
    assert (alert.labels, alert.annotations) == ({"a": "5"}, {"b": "5", "c": '[1,"a"]'})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"host": "h"}, "name: missing"),
        ({"host": "", "name": "n"}, "host: Expected"),
        ({"host": "h", "name": "a\n"}, "name: has a control character"),
        ({"host": "h", "name": "n", "status": "bad"}, "status: Invalid enum value"),
        ({"host": "h", "name": "n", "value": "x"}, "value: expected a number"),
        ({"host": "h", "name": "n", "value": True}, "value: expected a number"),
        ({"host": "h", "name": "n", "value": 1 << 70}, "value: beyond 64 bits"),
        ({"host": "h", "name": "n", "timestamp": "soon"}, "timestamp: expected seconds"),
        ({"host": "h", "name": "n", "timestamp": [1]}, "timestamp: Expected"),
    ],
)
def test_an_item_that_is_wrong(body: dict[str, Any], said: str) -> None:
    parsed = read(
        plain(status="status", value="value", timestamp="timestamp"), [{"host": "h", "name": "n"}, body]
    )
    assert len(parsed.items) == 1
    assert parsed.rejected[0].index == 1
    assert parsed.rejected[0].error.startswith(said)


def test_what_an_expression_does_not_expect_is_told_by_field() -> None:
    hook = Mapped(Hook(name="h", alert=HookAlert(host="host", name="join('-', parts)")))
    parsed = read(hook, {"host": "h", "parts": 5})
    assert parsed.rejected[0].error.startswith("name: In function join()")
    whole = Mapped(Hook(name="h", items="keys(a)", alert=HookAlert(host="host", name="name")))
    with pytest.raises(BadBody, match="items: In function keys"):
        read(whole, {"a": 5})


@pytest.mark.parametrize("items", [None, "alerts"])
@pytest.mark.parametrize("body", [b"", b"[" * 20_000, b"{", b"\xff", b'{"a":1}{"a":1}', b"1" * 5000])
def test_a_body_that_is_no_json(items: str | None, body: bytes) -> None:
    hook = Mapped(Hook(name="h", items=items, alert=HookAlert(host="host", name="name")))
    with suppress(BadBody):  # as a whole, or its only item
        parsed = read(hook, body)
        assert parsed.items == []
        assert parsed.rejected


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/x-www-form-urlencoded", b"a=b"),
        ("application/x-www-form-urlencoded", b"\xff=1"),
        ("application/x-www-form-urlencoded", b"a=1&" * 200),
        ("multipart/form-data; boundary=x", b"nonsense"),
        ("multipart/form-data", b""),
    ],
)
def test_a_form_without_the_field(kind: str, body: bytes) -> None:
    hook = Mapped(Hook(name="h", form="data", alert=HookAlert(host="host", name="name")))
    with pytest.raises(BadBody) as refused:
        read(hook, body, {"Content-Type": kind})
    assert refused.value.status == 400


def test_a_form_where_none_is_expected() -> None:
    with pytest.raises(BadBody) as refused:
        read(plain(), b"a=b", {"Content-Type": "application/x-www-form-urlencoded"})
    assert refused.value.status == 415


def test_a_reading_needs_a_value() -> None:
    hook = Mapped(Hook(name="h", reading=HookReading(host="host", metric="metric", value="value")))
    parsed = read(
        hook, [{"host": "h", "metric": "m", "value": None}, {"host": "h", "metric": "m", "value": "nan"}]
    )
    assert [rejected.field for rejected in parsed.rejected] == ["value", "value"]


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("{name: h}", "hooks[0]", "expected either alert or reading"),
        ("{name: h, alert: {host: 'a[', name: b}}", "hooks[0].alert.host", "is no JMESPath expression"),
        (
            "{name: h, alert: {host: a, name: b, labels: {x: 'f(a)'}}}",
            "hooks[0].alert.labels.x",
            "has no function f()",
        ),
        ("{name: h, items: '}', alert: {host: a, name: b}}", "hooks[0].items", "is no JMESPath expression"),
        ("{name: h, reading: {host: a, metric: b}}", "hooks[0].reading.value", "is missing"),
        (
            "{name: h, alert: {host: a, name: b}, values: {status: {a: b}}}",
            "hooks[0].values.status",
            "no expression",
        ),
        ("{name: h, alert: {host: a, name: b, sumary: c}}", "hooks[0].alert.sumary", "did you mean summary?"),
    ],
)
def test_faults_have_their_place(tmp_path: Path, text: str, place: str, said: str) -> None:
    file = tmp_path / "redispatch.yaml"
    file.write_text(f"hooks:\n  - {text}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load(str(file), {})
    [fault] = refused.value.faults
    assert fault.place.endswith(f":2 {place}")
    assert said in fault.message


@given(body=st.binary(max_size=200) | st.text(alphabet="-b\r\n name=data;{}").map(str.encode))
@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=b", "application/x-www-form-urlencoded"])
def test_any_form_is_read_or_refused(kind: str, body: bytes) -> None:
    hook = Mapped(Hook(name="h", form="data", alert=HookAlert(host="host", name="name")))
    with suppress(BadBody):
        assert read(hook, body, {"Content-Type": kind}).items == []


@pytest.mark.parametrize(
    "head",
    [
        'Content-Disposition: form-data; name="data"',
        "content-disposition: form-data; name=data; filename=x.json\r\nContent-Type: application/json",
    ],
)
@pytest.mark.parametrize("quoted", ["b", '"b"'])
def test_forms_as_they_are_sent(head: str, quoted: str) -> None:
    hook = Mapped(Hook(name="h", form="data", alert=HookAlert(host="host", name="name")))
    other = '--b\r\nContent-Disposition: form-data; name="database"\r\n\r\n{}\r\n'
    body = f'{other}--b\r\n{head}\r\n\r\n{{"host":"h","name":"n"}}\r\n--b--\r\n'.encode()
    [alert] = alerts(read(hook, body, {"Content-Type": f"multipart/form-data; boundary={quoted}"}))
    assert (alert.host, alert.name) == ("h", "n")

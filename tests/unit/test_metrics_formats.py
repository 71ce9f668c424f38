"""collectd and Telegraf: values to readings, notifications to alerts."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from multidict import CIMultiDict

from common.alert import Status
from ingest.event import Event, Reading
from ingest.formats.bodies import MOST_ITEMS, BadBody, Parsed
from ingest.parse import FORMATS
from tests.support.samples import JSON, payload, request

NOW = 1_772_439_300_000
LATER = 1_795_968_600_000
LIMIT = 1024**2
HOST = "node-01.example.net"


def read(route: str, body: object, headers: Any = JSON, now: int = NOW) -> Parsed[Any]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return FORMATS[route].reader(CIMultiDict(headers))(raw, now, LIMIT)


def collectd(body: object, now: int = NOW) -> Parsed[Any]:
    return read("/v1/collectd", body, now=now)


def telegraf(body: object) -> Parsed[Any]:
    return read("/v1/telegraf", body)


def readings(parsed: Parsed[Any]) -> list[tuple[Any, ...]]:
    found = [item for _, item in parsed.items]
    assert all(isinstance(item, Reading) for item in found)
    return [(item.host, item.metric, item.value, item.timestamp, item.labels) for item in found]


def test_collectd_5() -> None:
    parsed = collectd(payload("collectd5-write-http-json.json"))
    at = 1_772_439_277_125
    assert readings(parsed) == [
        (HOST, "disk.sda.disk_octets.read", 197_141_504, at, {}),
        (HOST, "disk.sda.disk_octets.write", 175_136_768, at, {}),
        (HOST, "load.load.relative", 0.42, at, {}),
    ]
    assert parsed.rejected == []  # a value that is null is none
    assert [index for index, _ in parsed.items] == [0, 0, 1]


def test_collectd_6() -> None:
    parsed = collectd(payload("collectd6-write-http-json.json"))
    labels = {"device": "eth0", "direction": "receive"}
    assert readings(parsed) == [
        (HOST, "system_load_1m", 0.42, 1_772_439_277_125, {}),
        (HOST, "system_network_io", 18_446_744_073_709_551_615, 1_772_439_277_125, labels),
    ]
    assert parsed.rejected == []


def test_real_values() -> None:
    parsed = read("/v1/collectd", *request("collectd-02"), LATER)
    assert parsed.rejected == []
    assert {item.metric for _, item in parsed.items} >= {"load.load.shortterm", "memory.memory.used"}
    assert {item.host for _, item in parsed.items} == {"vm-test"}


def test_a_real_notification() -> None:
    [(_, event)] = read("/v1/collectd", *request("collectd-01"), LATER).items
    alert = event.alert
    assert (alert.host, alert.name, alert.severity) == ("vm-test", "collectd_load", "warning")
    assert alert.summary.startswith("Host vm-test, plugin load")
    assert alert.timestamp == 1_795_968_546_739
    assert not event.repeated


@pytest.mark.parametrize(
    ("severity", "means", "status"),
    [
        ("FAILURE", "critical", Status.FIRING),
        ("WARNING", "warning", Status.FIRING),
        ("OKAY", None, Status.RESOLVED),
        ("UNKNOWN", "UNKNOWN", Status.FIRING),
    ],
)
def test_severities_of_a_notification(severity: str, means: str | None, status: Status) -> None:
    [told] = json.loads(payload("collectd-alertmanager-notification.json"))
    told["labels"]["severity"] = severity
    [(_, event)] = collectd([told]).items
    assert isinstance(event, Event)
    assert (event.alert.severity, event.alert.status) == (means, status)
    assert event.alert.labels == {"df": "var", "type": "free", "service": "collectd"}


def test_a_notification_and_its_end_are_one_incident() -> None:
    [told] = json.loads(payload("collectd-alertmanager-notification.json"))
    over = {**told, "labels": {**told["labels"], "severity": "OKAY"}}
    assert len({event.alert.incident for _, event in collectd([told, over]).items}) == 1


VALUES: dict[str, Any] = {
    "values": [1],
    "dsnames": ["value"],
    "time": 1_772_439_277,
    "host": "h",
    "plugin": "p",
    "type": "t",
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"host": ""}, "host: missing"),
        ({"host": "a\x00"}, "host: has a control character"),
        ({"plugin": None}, "plugin: Expected str, got null"),
        ({"values": [1, 2]}, "dsnames: 1 names for 2 values"),
        ({"values": ["x"]}, "values[0]: expected a number, got 'x'"),
        ({"values": ["\u0661"]}, "values[0]: expected a number, got '\u0661'"),
        ({"values": ["1e999"]}, "values[0]: not a finite number"),
        ({"values": [True]}, "values[0]: Expected"),
        ({"values": [1 << 70]}, "values[0]: beyond 64 bits"),
        ({"values": None}, "has neither values nor metrics nor labels"),
        ({"time": "x"}, "time: expected seconds"),
    ],
)
def test_an_item_that_is_wrong_is_refused_by_itself(change: dict[str, Any], said: str) -> None:
    parsed = collectd([VALUES, {**VALUES, **change}])
    assert len(parsed.items) == 1
    assert parsed.rejected[0].index == 1
    assert parsed.rejected[0].error.startswith(said)


@pytest.mark.parametrize("text", ["nan", "NaN", " nan "])
def test_nan_is_no_value(text: str) -> None:
    parsed = collectd([{**VALUES, "values": [text]}])
    assert (parsed.items, parsed.rejected) == ([], [])


def test_telegraf() -> None:
    parsed = telegraf(payload("telegraf-http-json-batch.json"))
    at = 1_772_439_270_000
    assert readings(parsed) == [
        ("node-01", "cpu.usage_idle", 91.4, at, {"cpu": "cpu-total"}),
        ("node-01", "cpu.usage_user", 6.2, at, {"cpu": "cpu-total"}),
        ("node-01", "disk.used_percent", 97.1, at, {"path": "/var"}),
        ("node-01", "disk.inodes_free", 18_446_744_073_709_551_615, at, {"path": "/var"}),
    ]
    assert parsed.rejected == []


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("single", 1_772_439_270_000),
        ("batch-ms", 1_772_439_270_123),
        ("batch-ns", 1_772_439_270_123),
    ],
)
def test_telegraf_in_any_unit(name: str, at: int) -> None:
    parsed = telegraf(payload(f"telegraf-http-json-{name}.json"))
    assert readings(parsed) == [("node-01", "cpu.usage_idle", 91.4, at, {"cpu": "cpu-total"})]
    assert not parsed.single


def test_telegraf_without_a_type_of_its_own() -> None:
    body = payload("telegraf-http-json-single.json")
    assert len(read("/v1/telegraf", body, {"Content-Type": "text/plain; charset=utf-8"}).items) == 1


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ({"name": "cpu", "fields": {"a": 1}}, "tags.host: missing"),
        ({"name": "", "fields": {"a": 1}, "tags": {"host": "h"}}, "name: missing"),
        ({"name": "cpu", "tags": {"host": "h"}}, "fields: missing"),
        ({"name": "cpu", "fields": {"a": 1 << 70}, "tags": {"host": "h"}}, "fields.a: beyond 64 bits"),
        ({"name": "cpu", "fields": {"a": [1]}, "tags": {"host": "h"}}, "fields[...]: Expected"),
    ],
)
def test_a_metric_that_is_wrong(metric: dict[str, Any], said: str) -> None:
    for body in (metric, {"metrics": [metric]}):
        parsed = telegraf(body)
        assert parsed.items == []
        assert parsed.rejected[0].error.startswith(said)


@pytest.mark.parametrize("route", ["/v1/collectd", "/v1/telegraf"])
@pytest.mark.parametrize("body", [b"", b"\x00", b"[" * 20_000, b"\xff\xfe{\0}\0"])
def test_bodies_that_are_none(route: str, body: bytes) -> None:
    with suppress(BadBody):  # as a whole, or its only item
        parsed = read(route, body)
        assert parsed.items == []
        assert parsed.rejected


def test_values_are_bounded_in_number() -> None:
    fields = {f"f{n}": n for n in range(MOST_ITEMS // 2)}
    metric = {"name": "m", "tags": {"host": "h"}, "fields": fields}
    assert len(telegraf({"metrics": [metric] * 2}).items) == MOST_ITEMS
    with pytest.raises(BadBody) as refused:
        telegraf({"metrics": [metric] * 3})
    assert refused.value.status == 413

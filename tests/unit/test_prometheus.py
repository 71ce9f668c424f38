"""Alerts of Prometheus, Alertmanager and Grafana: what each field becomes, and which items are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from multidict import CIMultiDict

from common.alert import Alert, Status
from ingest import identity
from ingest.formats.bodies import BadBody, Parsed
from ingest.parse import FORMATS
from tests.support.samples import JSON, payload, request

NOW = 1_772_439_300_000  # 23 s after the samples' base time
THEN = 1_795_968_400_000  # after the captures' resolutions
LIMIT = 1024**2
ROUTES = ("/api/v2/alerts", "/v1/alertmanager", "/v1/grafana")


def read(route: str, body: object, headers: Any = JSON, now: int = NOW, limit: int = LIMIT) -> Parsed[Any]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return FORMATS[route].reader(CIMultiDict(headers))(raw, now, limit)


def one(route: str = ROUTES[0], now: int = NOW, **fields: Any) -> Alert:
    item = {"labels": {"alertname": "Down"}, **fields}
    parsed = read(route, [item] if route == ROUTES[0] else {"alerts": [item]}, now=now)
    assert parsed.rejected == []
    [(_, event)] = parsed.items
    assert event.repeated
    assert event.key is None
    alert = event.alert
    assert isinstance(alert, Alert)
    return alert


def error(**fields: Any) -> str:
    parsed = read(ROUTES[0], [{"labels": {"alertname": "Down"}, **fields}])
    assert parsed.items == []
    return parsed.rejected[0].error


@pytest.mark.parametrize("name", ["alertmanager-webhook-01", "alertmanager-webhook-02"])
def test_the_fingerprint_is_the_one_that_alertmanager_computed(name: str) -> None:
    body, headers = request(name)
    told = [item["fingerprint"] for item in json.loads(body)["alerts"]]
    events = [event for _, event in read("/v1/alertmanager", body, headers, THEN).items]
    assert [event.alert.incident for event in events] == [f"am:{each}" for each in told]


def test_prometheus_and_its_alertmanager_tell_of_one_incident() -> None:
    told = [
        {event.alert.incident for _, event in read(route, *request(name), THEN).items}
        for route, name in ((ROUTES[0], "prometheus-alerts-02"), (ROUTES[1], "alertmanager-webhook-02"))
    ]
    assert told[0] == told[1]
    assert len(told[0]) == 2


def test_every_field() -> None:
    body, headers = request("prometheus-alerts-02")
    alert = read(ROUTES[0], body, headers, THEN).items[0][1].alert
    assert (alert.host, alert.name, alert.severity) == ("127.0.0.1:59683", "QueueDeep", "warning")
    assert alert.summary == "queue emails holds 5000 jobs"
    assert alert.url == "http://vm:34057/graph?g0.expr=queue_depth+%3E+1000&g0.tab=1"
    assert alert.labels["queue"] == "emails"
    assert alert.annotations["runbook_url"] == "https://example.com/runbooks/queue-deep"
    assert (alert.starts_at, alert.ends_at) == (1_795_968_109_373, 1_795_968_111_373)
    assert (alert.status, alert.timestamp, alert.source) == (Status.RESOLVED, alert.ends_at, "prometheus")


def test_an_end_in_the_future_says_that_it_still_fires() -> None:
    body, headers = request("prometheus-alerts-01")
    alerts = [event.alert for _, event in read(ROUTES[0], body, headers, 1_795_968_110_000).items]
    assert {alert.status for alert in alerts} == {Status.FIRING}
    assert {alert.ends_at for alert in alerts} == {None}
    assert {alert.timestamp for alert in alerts} == {1_795_968_109_373}


def test_an_end_may_be_years_ahead() -> None:
    assert one(endsAt="2099-01-01T00:00:00Z").status is Status.FIRING


def test_odd_items_are_refused_one_by_one() -> None:
    parsed = read(ROUTES[0], payload("prometheus-api-v2-alerts-edge.json"))
    assert [index for index, _ in parsed.items] == [0, 1, 3, 4]
    assert [(rejected.index, rejected.error) for rejected in parsed.rejected] == [
        (2, "endsAt: before startsAt"),
        (5, "labels.alertname: missing"),
        (6, "labels[...]: Expected str, got int"),
    ]
    only, zero, empty, odd = (event.alert for _, event in parsed.items)
    assert (only.host, only.starts_at, only.status) == ("", NOW, Status.FIRING)
    assert zero.starts_at == zero.ends_at == zero.timestamp == 1_772_439_277_000
    assert zero.status is Status.RESOLVED
    assert empty.labels == {"alertname": "EmptyNames"}
    assert odd.labels == {"alertname": "BadNames", "http.status_code": "500", "proc_aname[2]": "sh"}


def test_empty_labels_do_not_count() -> None:
    good = [{"labels": {"alertname": "X", "n": str(n)}} for n in range(50)]
    parsed = read(ROUTES[0], [*good, {"labels": {"alertname": "X", "": "x", "severity": ""}}])
    assert len(parsed.items) == 51
    assert parsed.items[-1][1].alert.incident == f"am:{identity.fingerprint({'alertname': 'X'})}"


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "", None])
def test_the_year_one_is_no_time(text: str | None) -> None:
    alert = one("/v1/alertmanager", startsAt=text, endsAt=text, status="firing")
    assert (alert.starts_at, alert.ends_at, alert.status) == (NOW, None, Status.FIRING)
    over = one("/v1/alertmanager", startsAt=text, endsAt=text, status="resolved")
    assert (over.starts_at, over.ends_at, over.status) == (NOW, NOW, Status.RESOLVED)


def test_the_label_host_goes_before_instance() -> None:
    assert one(labels={"alertname": "a", "host": "h", "instance": "i:9100"}).host == "h"
    assert one(labels={"alertname": "a", "host": "", "instance": "i:9100"}).host == "i:9100"


def test_nanoseconds_are_cut_off() -> None:
    assert one(startsAt="2026-03-02T08:14:59.9999996Z").starts_at == 1_772_439_299_999


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"startsAt": "yesterday"}, "startsAt: expected seconds"),
        ({"startsAt": "2027-01-01T00:00:00Z"}, "startsAt: more than a day ahead"),
        ({"labels": {"alertname": "a\n"}}, "labels.alertname: has a control character"),
        ({"labels": {"alertname": "a", "instance": "a\x00b"}}, "labels.instance: has a control character"),
        ({"labels": {"alertname": "a", "severity": "x" * 65}}, "labels.severity: longer than 64"),
        ({"labels": {"alertname": "x" * 256}}, "labels.alertname: longer than 255"),
        ({"labels": {f"l{n}": "x" for n in range(65)}}, "labels: Expected"),
        ({"labels": []}, "labels: Expected object, got array"),
        ({"annotations": {"a": 5}}, "annotations[...]: Expected str, got int"),
        ({"generatorURL": 5}, "generatorURL: Expected str"),
    ],
)
def test_what_is_wrong_is_said(fields: dict[str, Any], said: str) -> None:
    assert error(**fields).startswith(said)


def test_a_url_that_is_too_long_is_left_out() -> None:
    assert one(generatorURL="http://p/" + "x" * 3000).url is None


def test_a_group_with_firing_and_resolved_ones() -> None:
    parsed = read("/v1/alertmanager", payload("alertmanager-webhook-v4-mixed-resolved.json"))
    alerts = [event.alert for _, event in parsed.items]
    assert [alert.status for alert in alerts] == [Status.RESOLVED, Status.FIRING]
    assert alerts[0].ends_at == 1_772_440_267_482
    assert {alert.source for alert in alerts} == {"alertmanager"}


def test_grafana() -> None:
    [(_, event)] = read("/v1/grafana", payload("grafana-webhook.json")).items
    alert = event.alert
    assert (alert.host, alert.name, alert.source) == ("", "High latency", "grafana")
    assert alert.starts_at == 1_772_439_270_000  # with an offset from UTC
    assert alert.url.startswith("https://grafana.example.net/alerting/")


@pytest.mark.parametrize("route", ROUTES)
def test_content_types(route: str) -> None:
    body = [] if route == ROUTES[0] else {"alerts": []}
    for told in ("application/json; charset=utf-8", "text/plain", "APPLICATION/JSON"):
        assert read(route, body, {"Content-Type": told}).items == []
    assert read(route, body, {}).items == []
    for told in ("application/xml", "application/json; charset=utf-99"):
        with pytest.raises(BadBody) as refused:
            read(route, body, {"Content-Type": told})
        assert refused.value.status == 415


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "body",
    [b"{}", b"5", b"", b"[", b'"x"', b"[" * 20_000, b'{"alerts":{}}', b'{"alerts":5}', b"\xff\xfe[\0]\0"],
)
def test_what_is_no_list_of_alerts_is_refused(route: str, body: bytes) -> None:
    with pytest.raises(BadBody) as refused:
        read(route, body)
    assert refused.value.status == 400


def test_nesting_is_told_by_item() -> None:
    deep = b'[{"labels":{"alertname":"a"},"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}]"
    with pytest.raises(BadBody, match="nested too deeply"):
        read(ROUTES[0], deep)


def test_size_and_number_are_bounded() -> None:
    big = {"labels": {"alertname": "a"}, "annotations": {"a": "x" * 2000}}
    parsed = read(ROUTES[0], [big, {"labels": {"alertname": "a"}}], limit=1000)
    assert [rejected.error for rejected in parsed.rejected] == ["larger than 1000 bytes"]
    for route in ROUTES:
        many = b",".join([b"{}"] * 10_001)
        body = b"[%b]" % many if route == ROUTES[0] else b'{"alerts":[%b]}' % many
        with pytest.raises(BadBody) as refused:
            read(route, body)
        assert refused.value.status == 413


def test_a_crowd_in_a_member_is_refused_before_it_is_taken_apart() -> None:
    with pytest.raises(BadBody) as refused:
        read("/v1/alertmanager", b'{"alerts":[' + b"1," * 300_000)
    assert refused.value.status == 413

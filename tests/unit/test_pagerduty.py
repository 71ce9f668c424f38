"""What PagerDuty's events look like, and that no alert makes one that PagerDuty would refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.alert import Alert, Status
from common.units import Rate, Secret
from dispatcher.destinations import kinds
from dispatcher.destinations.base import Unrenderable
from dispatcher.destinations.pagerduty import PagerDuty, Settings
from dispatcher.destinations.pagerduty_event import LARGEST, event
from tests.support.deliveries import AT, alert, delivery

KEY = "0123456789abcdef0123456789abcdef"
HUGE = 2**20


def told(of: Alert) -> dict[str, Any]:
    """The event of an alert, once it is within what PagerDuty takes."""
    body = event("key", of, KEY)
    assert len(body) <= 512_000
    made: dict[str, Any] = json.loads(body)
    assert made["routing_key"] == KEY
    assert 0 < len(made["dedup_key"]) <= 255
    if made["event_action"] == "trigger":
        assert 0 < len(made["payload"]["summary"]) <= 1024
        assert made["payload"]["source"]
        assert made["payload"]["severity"] in ("critical", "error", "warning", "info")
    return made


def test_trigger() -> None:
    of = alert(
        severity="critical",
        summary="disk at 97 %",
        value=97.5,
        labels={"mount": "/var", "service": "db", "cluster": "c1"},
        annotations={"runbook": "https://r.example/"},
        url="https://g.example/d",
        starts_at=AT - 1000,
    )
    assert told(of) == {
        "routing_key": KEY,
        "event_action": "trigger",
        "dedup_key": "db1:disk",
        "client": "redispatch",
        "links": [{"href": "https://g.example/d", "text": "Source"}],
        "payload": {
            "summary": "disk at 97 %",
            "source": "db1",
            "severity": "critical",
            "timestamp": "2025-11-29T17:42:00.042Z",
            "component": "db",
            "group": "c1",
            "class": "disk",
            "custom_details": {
                "key": "key",
                "name": "disk",
                "severity": "critical",
                "value": 97.5,
                "starts_at": "2025-11-29T17:41:59.042Z",
                "labels": {"mount": "/var", "service": "db", "cluster": "c1"},
                "annotations": {"runbook": "https://r.example/"},
            },
        },
    }


def test_resolve_has_the_triggers_dedup_key() -> None:
    assert told(alert(status=Status.RESOLVED, summary="x", url="https://g.example/")) == {
        "routing_key": KEY,
        "event_action": "resolve",
        "dedup_key": told(alert())["dedup_key"],
    }


def test_a_long_incident_is_told_from_others_and_stays_the_same() -> None:
    keys = {
        told(alert(incident="i" * 300 + end, status=status))["dedup_key"] for end in "ab" for status in Status
    }
    assert len(keys) == 2
    assert all(len(key) == 255 for key in keys)


@pytest.mark.parametrize(
    ("given", "ranks"),
    [("critical", "critical"), ("error", "error"), ("warning", "warning"), ("info", "info")]
    + [(other, "warning") for other in ("sev1", "CRITICAL", "", None)],
)
def test_severity(given: str | None, ranks: str) -> None:
    assert told(alert(severity=given))["payload"]["severity"] == ranks


def test_what_is_absent_has_a_stand_in_or_is_left_out() -> None:
    payload = told(alert(host="", summary=" "))["payload"]
    assert (payload["summary"], payload["source"]) == ("disk", "native")
    assert payload["custom_details"] == {"key": "key", "name": "disk"}
    assert "component" not in payload
    assert told(alert())["payload"]["summary"] == "disk on db1"


@pytest.mark.parametrize("url", ["javascript:alert(1)", "", "https://h/" + "x" * 3000])
def test_a_url_that_is_no_link(url: str) -> None:
    assert "links" not in told(alert(url=url))


def test_a_huge_annotation_is_cut_and_the_others_are_whole() -> None:
    of = alert(annotations={"log": "x" * HUGE, "runbook": "r" * 1000}, summary="s" * HUGE)
    details = told(of)["payload"]["custom_details"]
    assert details["truncated"] is True
    assert details["annotations"]["log"] == "x" * 65_535 + "…"
    assert details["annotations"]["runbook"] == "r" * 1000
    assert event("key", of, KEY) == event("key", of, KEY)


@pytest.mark.parametrize("text", ["a", "\x00", "\ud800", "漢", "\n", '"'])
def test_huge_and_odd_texts_are_cut(text: str) -> None:
    for count in (1, 500, 20_000):
        made = told(
            alert(
                incident=text * 300,
                host=text * HUGE,
                name=text * HUGE,
                severity=text * HUGE,
                summary=text * HUGE,
                labels={f"{n}": text * (HUGE // count) for n in range(count)},
                url="https://h/" + text * 1000,
            )
        )
        assert made["payload"]["custom_details"]["truncated"] is True


def test_what_fits_is_not_cut() -> None:
    of = alert(annotations={"log": "x" * (LARGEST - 1000)})
    details = told(of)["payload"]["custom_details"]
    assert len(details["annotations"]["log"]) == LARGEST - 1000
    assert "truncated" not in details


@given(
    st.builds(
        alert,
        incident=st.text(min_size=1),
        host=st.text(),
        name=st.text(min_size=1),
        severity=st.none() | st.text(),
        summary=st.none() | st.text(),
        status=st.sampled_from(Status),
        value=st.none() | st.integers(-(2**63), 2**63) | st.floats(),
        labels=st.dictionaries(st.text(), st.text()),
    )
)
def test_any_alert_makes_an_event(of: Alert) -> None:
    told(of)


def pagerduty(**settings: Any) -> Settings:
    given: dict[str, Any] = {"name": "pager", "type": "pagerduty", "routing_key": Secret(KEY)}
    return Settings(**given | settings)


def test_settings() -> None:
    one = pagerduty()
    assert one.rate == Rate(2)
    assert one.url == Secret("https://events.pagerduty.com/v2/enqueue")
    assert list(kinds.faults(one)) == list(kinds.warnings(one)) == []
    assert not kinds.batches("pagerduty")
    assert isinstance(kinds.make(one), PagerDuty)
    assert list(kinds.faults(pagerduty(routing_key=Secret(" ")))) == [(("routing_key",), "is empty")]
    assert list(kinds.warnings(pagerduty(routing_key=Secret("short")))) == [
        (("routing_key",), "does not have the 32 characters of an integration key")
    ]
    assert KEY not in repr(one)


def test_a_request_is_the_event() -> None:
    made = PagerDuty(pagerduty())
    assert made.request([delivery()]).body == event("db1:disk:1", alert(), KEY)
    with pytest.raises(Unrenderable, match="date value out of range"):
        made.request([delivery(of=alert(timestamp=10**15))])

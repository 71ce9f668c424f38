from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.alert import Status
from dispatcher.destinations.payload import RENDER_FAULTS, body, rfc3339
from tests.support.deliveries import AT, alert, delivery


def test_an_alert_with_everything() -> None:
    whole = alert(
        status=Status.RESOLVED,
        severity="critical",
        summary="disk at 97 %",
        value=97.5,
        labels={"mount": "/var"},
        annotations={"runbook": "https://r.example/1"},
        url="https://g.example/1",
        starts_at=AT - 1000,
        ends_at=AT + 1,
        source="prometheus",
    )
    assert json.loads(body(delivery(attempt=3, of=whole))) == {
        "type": "alert.resolved",
        "timestamp": "2025-11-29T17:42:00.042Z",
        "data": {
            "key": "db1:disk:1",
            "incident": "db1:disk",
            "host": "db1",
            "name": "disk",
            "severity": "critical",
            "status": "resolved",
            "summary": "disk at 97 %",
            "value": 97.5,
            "labels": {"mount": "/var"},
            "annotations": {"runbook": "https://r.example/1"},
            "url": "https://g.example/1",
            "starts_at": "2025-11-29T17:41:59.042Z",
            "ends_at": "2025-11-29T17:42:00.043Z",
            "timestamp": "2025-11-29T17:42:00.042Z",
            "attempt": 3,
            "source": "prometheus",
        },
    }


def test_what_is_absent_is_null() -> None:
    read = json.loads(body(delivery()))
    assert read["type"] == "alert.firing"
    absent = {name for name, value in read["data"].items() if value is None}
    assert absent == {"severity", "summary", "value", "url", "starts_at", "ends_at"}
    assert read["data"]["labels"] == read["data"]["annotations"] == {}


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**64 - 1, 10**400, 0, 0.1, 1e300, 97.0])
def test_numbers_are_not_changed(value: float) -> None:
    sent = json.loads(body(delivery(of=alert(value=value))))["data"]["value"]
    assert (sent, type(sent)) == (value, type(value))


def test_any_text_goes_through() -> None:
    text = 'päd 漢 "\\ \r\nX-Evil: 1 \x00'
    assert json.loads(body(delivery(of=alert(host=text, labels={text: text}))))["data"]["labels"] == {
        text: text
    }


@pytest.mark.parametrize("fields", [{"value": 10**5000}, {"host": "\ud800"}, {"timestamp": 10**17}])
def test_what_cannot_be_said_in_json_is_a_render_fault(fields: dict[str, object]) -> None:
    with pytest.raises(RENDER_FAULTS):
        body(delivery(of=alert(**fields)))


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_times_are_rfc_3339_to_the_millisecond(ms: int) -> None:
    read = datetime.fromisoformat(rfc3339(ms))
    assert (read - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000 == pytest.approx(ms, abs=0.1)
    assert len(rfc3339(ms)) == len("2026-11-29T17:42:00.000Z")

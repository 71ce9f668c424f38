"""Bodies to events and readings: what is taken, and what each refusal says."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.alert import Status
from ingest.event import Event, Reading
from ingest.formats import bodies, native
from ingest.formats.bodies import BadBody, Kind, Parsed, Rejected

NOW = 1_772_439_300_000
LIMIT = 1024**2


def alerts(body: bytes | object, kind: Kind = Kind.JSON, limit: int = LIMIT) -> Parsed[Event]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return native.alerts(raw, kind, NOW, limit)


def readings(body: bytes, kind: Kind = Kind.JSON) -> Parsed[Reading]:
    return native.readings(body, kind, NOW, LIMIT)


def alert(**fields: Any) -> dict[str, Any]:
    return {"host": "web-1", "name": "disk-full", **fields}


def only(parsed: Parsed[Event]) -> Rejected:
    assert parsed.items == []
    assert len(parsed.rejected) == 1
    return parsed.rejected[0]


def test_all_fields_of_an_alert() -> None:
    body = alert(
        severity="critical",
        status="resolved",
        summary="full",
        value=97.5,
        timestamp=1_772_439_277,
        starts_at="2026-03-02T08:00:00Z",
        ends_at="2026-03-02T08:14:37Z",
        labels={"mount": "/var"},
        annotations={"runbook": "x"},
        url="https://example.net/1",
        unknown={"a": [1, {}]},
    )
    parsed = alerts(body)
    assert parsed.single
    [(index, event)] = parsed.items
    got = event.alert
    assert (index, event.key, got.key) == (0, None, "")
    assert (got.host, got.name, got.severity, got.status) == (
        "web-1",
        "disk-full",
        "critical",
        Status.RESOLVED,
    )
    assert (got.summary, got.value, got.url, got.source) == ("full", 97.5, "https://example.net/1", "native")
    assert (got.timestamp, got.starts_at, got.ends_at) == (
        1_772_439_277_000,
        1_772_438_400_000,
        1_772_439_277_000,
    )
    assert (got.labels, got.annotations) == ({"mount": "/var"}, {"runbook": "x"})
    assert got.incident.startswith("web-1:disk-full:")


def test_what_is_absent_null_or_empty_is_none_and_now() -> None:
    empty = dict.fromkeys(
        ("severity", "status", "summary", "value", "timestamp", "starts_at", "ends_at", "labels", "url")
    )
    for body in (alert(), alert(**empty), alert(severity="", labels={})):
        [(_, event)] = alerts(body).items
        got = event.alert
        assert (got.severity, got.status, got.timestamp, got.starts_at) == (None, Status.FIRING, NOW, None)
        assert got.incident == "web-1:disk-full"


def test_empty_labels_are_dropped_before_the_incident_is_made() -> None:
    plain, padded = (
        alerts(alert(labels=labels)).items[0][1].alert
        for labels in ({"mount": "/var"}, {"mount": "/var", "": "x", "zone": ""})
    )
    assert plain == padded


def test_odd_label_names_are_kept() -> None:
    labels = {"http.status_code": "500", "proc_aname[2]": "sh", "übung": "1"}
    assert alerts(alert(labels=labels)).items[0][1].alert.labels == labels


@pytest.mark.parametrize(
    ("body", "field", "error"),
    [
        ({"name": "x"}, "host", "missing"),
        ({"host": "x"}, "name", "missing"),
        (alert(host=""), "host", "length >= 1"),
        (alert(host=1), "host", "Expected str"),
        (alert(host="x" * 256), "host", "length <= 255"),
        (alert(name="a\x00b"), "name", "control character"),
        (alert(host="a\nb"), "host", "control character"),
        (alert(host="a\u2028b"), "host", "control character"),
        (alert(severity="a\x1bb"), "severity", "control character"),
        (alert(severity="x" * 65), "severity", "length <= 64"),
        (alert(status="broken"), "status", "Invalid enum value"),
        (alert(value="97"), "value", "Expected int | float"),
        (alert(value=True), "value", "got bool"),
        (alert(value=1 << 64), "value", "beyond 64 bits"),
        (alert(value=-(1 << 63) - 1), "value", "beyond 64 bits"),
        (alert(timestamp=-1), "timestamp", "before 1970"),
        (alert(timestamp=NOW + 90_000_000), "timestamp", "more than a day ahead"),
        (alert(timestamp={}), "timestamp", "got object"),
        (alert(starts_at="soon"), "starts_at", "RFC 3339"),
        (alert(starts_at=1000, ends_at=999), "ends_at", "before starts_at"),
        (alert(labels={"a": 1}), "labels[...]", "Expected str"),
        (alert(labels={str(n): "x" for n in range(65)}), "labels", "length <= 64"),
        (alert(labels={"x" * 256: "y"}), "labels", "length <= 255"),
        (alert(labels={"x": "y" * 4097}), "labels[...]", "length <= 4096"),
        (alert(labels={"a\tb": "y"}), "labels", "control character"),
        (alert(annotations={"x": "y" * 65_537}), "annotations[...]", "length <= 65536"),
        (alert(summary="y" * 65_537), "summary", "length <= 65536"),
        (alert(url="y" * 2049), "url", "length <= 2048"),
        (b'{"host":"a","name":"b","value":1e400}', "value", "out of range"),
        (b'{"host":"a","name":"b","value":NaN}', None, "malformed"),
        (b"5", None, "Expected object"),
        (b'"text"', None, "Expected object"),
        (b'{"host":', None, "truncated"),
        (b"nonsense", None, "malformed"),
    ],
)
def test_refusals_name_field_and_reason(body: object, field: str | None, error: str) -> None:
    rejected = only(alerts(body))
    assert rejected.field == field
    assert error in rejected.error
    assert field is None or rejected.error.startswith(f"{field}: ")


def test_integers_keep_their_last_digit() -> None:
    for value in (9_007_199_254_740_993, (1 << 64) - 1, -(1 << 63)):
        assert alerts(alert(value=value)).items[0][1].alert.value == value


def test_an_array_is_a_batch_with_a_refusal_per_item() -> None:
    parsed = alerts([alert(), {"host": "x"}, 7, alert(host="web-2")])
    assert not parsed.single
    assert [(index, event.alert.host) for index, event in parsed.items] == [(0, "web-1"), (3, "web-2")]
    assert [(one.index, one.field, one.line) for one in parsed.rejected] == [
        (1, "name", None),
        (2, None, None),
    ]
    assert alerts([]).items == []
    assert not alerts([alert()]).single


def test_lines_are_a_batch_with_line_numbers() -> None:
    good = json.dumps(alert()).encode()
    parsed = alerts(good + b"\r\n\n{}\n" + good + b"\n" + good[:-20], Kind.LINES)
    assert [index for index, _ in parsed.items] == [0, 2]
    assert [(one.index, one.line) for one in parsed.rejected] == [(1, 3), (3, 5)]
    assert not alerts(good, Kind.LINES).single


def test_one_item_is_bounded_in_size() -> None:
    with pytest.raises(BadBody) as refused:
        alerts(alert(summary="x" * 200), limit=100)
    assert refused.value.status == 413
    parsed = alerts([alert(), alert(summary="x" * 200)], limit=100)
    assert [one.error for one in parsed.rejected] == ["larger than 100 bytes"]


def test_a_batch_is_bounded_in_items() -> None:
    with pytest.raises(BadBody) as refused:
        alerts(b"1\n" * (bodies.MOST_ITEMS + 1), Kind.LINES)
    assert refused.value.status == 413


MOST = bodies.MOST_ITEMS
CROWD = b'{"host":"a","name":"b","summary":"' + b"," * 30 + b'"}'


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"[" + b"1," * 300_000, Kind.JSON),  # told before its end is looked for
        (b"[" + b",".join([b"{}"] * (bodies.CROWDED + 2)) + b"]", Kind.JSON),
        (b"[" + b",".join([CROWD] * (MOST + 1)) + b"]", Kind.JSON),
        (b"{}" + b"\n" * bodies.MOST_LINES + b"{}", Kind.LINES),
    ],
    ids=["open", "empty", "alerts", "lines"],
)
def test_a_crowd_is_refused_before_it_is_taken_apart(
    monkeypatch: pytest.MonkeyPatch, body: bytes, kind: Kind
) -> None:
    plain = bodies._decoder

    def bounded(member: str, array: object) -> object:
        assert array is bodies._bounded()
        return plain(member, array)

    monkeypatch.setattr(bodies, "_decoder", bounded)
    with pytest.raises(BadBody) as refused:
        alerts(body, kind)
    assert refused.value.status == 413


def test_what_looks_like_a_crowd_and_is_none_is_taken() -> None:
    assert len(alerts(b"[" + b",".join([CROWD] * MOST) + b"]").items) == MOST
    assert len(alerts(b"[" + CROWD[:-2] + b"," * 2 * bodies.CROWDED + b'"}]').rejected) == 1  # its summary
    assert len(alerts(CROWD + b"\n" * 2 * bodies.MOST_LINES, Kind.LINES).items) == 1


READING = '{"host":"node-01","metric":"cpu","value":1.5,"timestamp":%s}'


@pytest.mark.parametrize(
    ("timestamp", "ms"),
    [
        ("1772439270", 1_772_439_270_000),
        ("1772439270.0", 1_772_439_270_000),
        ("1772439270123", 1_772_439_270_123),
        ("1772439270123456", 1_772_439_270_123),
        ("1772439270123456789", 1_772_439_270_123),
    ],
)
def test_readings_tell_units_of_time_apart(timestamp: str, ms: int) -> None:
    [(_, reading)] = readings((READING % timestamp).encode()).items
    assert reading == Reading("node-01", "cpu", 1.5, ms)


def test_a_reading_has_a_value_or_a_percentage() -> None:
    assert readings(b'{"host":"a","metric":"b","percent":0}').items[0][1].value == 0
    assert readings(b'{"host":"a","metric":"b","percent":1,"value":0}').items[0][1].value == 0
    assert readings(b'{"host":"a","metric":"b"}').rejected[0].field == "value"
    assert readings(b'{"host":"a","metric":"b","percent":"NaN"}').rejected[0].field == "percent"
    assert readings(b'{"host":"a","metric":""}').rejected[0].field == "metric"


@pytest.mark.parametrize(
    "body",
    [
        (READING % ("9" * 400)).encode(),
        (READING % "19933688932870350000").encode(),
        (READING % "1").replace("1.5", "1e400").encode(),
        (READING % "1").replace("1.5", '"NaN"').encode(),
        (READING % "1").replace("node", "node\\u0000").encode(),
        (READING % "1").replace("node", "node\n").encode(),
        (READING % "1").replace("node", "node\\ud800").encode(),
        (READING % "1").encode() + b"\x00",
        (READING % "1").encode() + b"\n" + (READING % "1").encode(),
        (READING % ('1,"x":' + "[" * 20_000)).encode(),
        (READING % ('1,"x":' + "[" * 20_000 + "]" * 20_000)).encode(),
        (READING % ('1,"x":' + '{"a":' * 20_000 + "1" + "}" * 20_000)).encode(),
    ],
)
def test_malformed_readings_are_refused(body: bytes) -> None:
    parsed = readings(body)
    assert parsed.items == []
    assert parsed.rejected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \r\n",
        b"\xef\xbb\xbf",
        b"[" * 20_000,
        b"[" * 20_000 + b"]" * 20_000,
        b"[1,2",
        b"[1] [2]",
        (READING % "1").replace("node", "nöde").encode("latin-1"),
        (READING % "1").encode("utf-16"),
        (READING % "1").encode().replace(b"node", b"node\xff\xfe"),
        (READING % '1,"x":"?"').encode().replace(b"?", b"\xff"),
    ],
)
def test_bodies_without_items_are_refused_whole(body: bytes) -> None:
    with pytest.raises(BadBody) as refused:
        readings(body)
    assert refused.value.status == 400


def test_what_windows_puts_around_a_document_is_fine() -> None:
    assert readings(b"\xef\xbb\xbf" + (READING % "1").encode() + b"\r\n").items
    assert readings(b"\xef\xbb\xbf \n[" + (READING % "1").encode() + b"]\r\n").items
    assert readings(b"\xef\xbb\xbf" + (READING % "1").encode(), Kind.LINES).items


@given(st.binary(max_size=200), st.sampled_from(Kind))
def test_no_body_raises_anything_but_bad_body(body: bytes, kind: Kind) -> None:
    for read in (native.alerts, native.readings):
        with suppress(BadBody):
            read(body, kind, NOW, LIMIT)


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ["severity", "status", "summary", "value", "timestamp", "starts_at", "ends_at", "labels", "url"]


@given(st.dictionaries(st.sampled_from(["host", "name", "annotations", *FIELDS]), JSONS))
def test_whatever_a_field_holds_the_item_is_taken_or_refused(fields: dict[str, Any]) -> None:
    parsed = alerts([{"host": "h", "name": "n", **fields}])
    assert len(parsed.items) + len(parsed.rejected) == 1


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        (None, Kind.JSON),
        ("", Kind.JSON),
        ("application/json", Kind.JSON),
        ("Application/JSON; Charset=UTF-8", Kind.JSON),
        ('application/json; charset="utf-8"', Kind.JSON),
        ("application/cloudevents+json", Kind.JSON),
        ("text/json", Kind.JSON),
        ("application/x-ndjson", Kind.LINES),
        ("application/ndjson;charset=utf-8", Kind.LINES),
    ],
)
def test_content_types(content_type: str | None, kind: Kind) -> None:
    assert bodies.kind(content_type) is kind


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/xml",
        "multipart/form-data; boundary=x",
        "application/json; charset=iso-8859-1",
        "application/json; charset=utf-99",
        "application/json; charset=utf-16",
        "application/+json",
        "json",
    ],
)
def test_other_content_types_are_415(content_type: str) -> None:
    with pytest.raises(BadBody) as refused:
        bodies.kind(content_type)
    assert refused.value.status == 415

"""CloudEvents: three modes, one event; what its attributes and its data become."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from common.alert import Status
from ingest.event import Event
from ingest.formats.bodies import BadBody, Parsed
from ingest.parse import FORMATS
from tests.support.samples import payload, request, split

NOW = 1_772_439_300_000
LIMIT = 1024**2
STRUCTURED = {"Content-Type": "application/cloudevents+json; charset=UTF-8"}
BATCH = {"Content-Type": "application/cloudevents-batch+json"}
BINARY = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/a", "ce-type": "t"}


def read(body: object, headers: Any = STRUCTURED, now: int = NOW) -> Parsed[Event]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return FORMATS["/v1/events"].reader(CIMultiDict(headers))(raw, now, LIMIT)


def one(body: object, headers: Any = STRUCTURED) -> Event:
    parsed = read(body, headers)
    assert parsed.rejected == []
    assert parsed.single
    [(_, event)] = parsed.items
    return event


def event(**fields: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": "7", "source": "/a", "type": "t", **fields}


def binary(body: bytes, content_type: str | None = "application/json", **attributes: str) -> Event:
    headers = {**BINARY, **{f"ce-{name}": value for name, value in attributes.items()}}
    return one(body, headers | ({} if content_type is None else {"Content-Type": content_type}))


def test_structured() -> None:
    told = one(payload("cloudevents-structured.json"))
    alert = told.alert
    assert told.key == "ce:~2fagents~2fnode-01:E-1001"
    assert alert.incident == "ce:~2fagents~2fnode-01:disk~2fvar"
    assert (alert.host, alert.name) == ("/agents/node-01", "net.example.alert.raised")
    assert alert.timestamp == 1_772_439_277_482
    assert alert.labels == {"subject": "disk/var"}
    assert alert.annotations == {"host": "node-01", "metric": "disk_used", "value": "97.1"}
    assert (alert.status, alert.source) == (Status.FIRING, "cloudevent")


def test_a_batch() -> None:
    parsed = read(payload("cloudevents-batch.json"), BATCH)
    assert not parsed.single
    assert [told.key for _, told in parsed.items] == [
        f"ce:~2fagents~2fnode-01:E-{n}" for n in (1001, 1002, 1003, 1001)
    ]
    _, text, binary, _ = (told.alert for _, told in parsed.items)
    assert text.annotations == {"data": "just a string"}
    assert text.incident == "ce:~2fagents~2fnode-01:net~2eexample~2ealert~2eraised"
    assert binary.annotations == {"data_base64": "eyJob3N0Ijoibm9kZS0wMSJ9"}


def test_an_empty_batch_is_fine() -> None:
    assert read(payload("cloudevents-batch-empty.json"), BATCH).items == []


def test_binary() -> None:
    body, headers = split(payload("cloudevents-binary.http"))
    told = one(body.rstrip(), headers)
    assert told.key == "ce:~2fagents~2fnode-01:E-1004"
    assert told.alert.labels == {"subject": "Euro € 😀"}
    assert told.alert.annotations == {"host": "node-01", "metric": "disk", "value": "97"}


@pytest.mark.parametrize("name", ["cloudevents-01", "cloudevents-03", "cloudevents-05"])
def test_real_requests(name: str) -> None:
    body, headers = request(name)
    parsed = read(body, headers, 1_795_968_700_000)
    assert parsed.rejected == []
    assert {told.alert.annotations["job"] for _, told in parsed.items} == {"1"}


def test_the_modes_say_the_same() -> None:
    data = {"a": 1, "b": "x", "c": [1, {"d": None}]}
    attributes = {"subject": "s", "time": "2026-03-02T08:14:37Z"}
    structured = one(event(**attributes, data=data))
    [(_, batched)] = read([event(**attributes, data=data)], BATCH).items
    assert structured == batched == binary(json.dumps(data).encode(), **attributes)


@pytest.mark.parametrize(
    ("content_type", "body", "annotations"),
    [
        ("text/plain", "für".encode(), {"data": "für"}),
        ("application/octet-stream", b"\x00\xff", {"data_base64": "AP8="}),
        ("image/png", b"\x89PNG", {"data_base64": "iVBORw=="}),
        ("application/vnd.x+json", b'{"a":"b"}', {"a": "b"}),
        ("application/json", b"\xef\xbb\xbf[1, 2]", {"data": "[1, 2]"}),
        ("application/json", b"", {}),
        (None, b"", {}),
    ],
)
def test_data_of_any_kind(content_type: str | None, body: bytes, annotations: dict[str, str]) -> None:
    assert binary(body, content_type).alert.annotations == annotations


@pytest.mark.parametrize(("body", "kind"), [(b"{", "application/json"), (b"\xff", "text/plain")])
def test_data_that_are_not_what_they_are_said_to_be(body: bytes, kind: str) -> None:
    assert read(body, {**BINARY, "Content-Type": kind}).items == []


def test_severity_status_and_summary_come_from_the_data() -> None:
    told = one(event(data={"severity": "critical", "status": "resolved", "summary": "over"}))
    assert (told.alert.severity, told.alert.status, told.alert.summary) == (
        "critical",
        Status.RESOLVED,
        "over",
    )
    assert told.key == "ce:~2fa:7:resolved"


@pytest.mark.parametrize("data", [{"severity": 5, "status": 1}, {"severity": "x" * 65}, {"severity": "a\nb"}])
def test_what_is_no_severity_or_status_is_only_an_annotation(data: dict[str, Any]) -> None:
    alert = one(event(data=data)).alert
    assert alert.status is Status.FIRING
    assert alert.severity in (None, "5")


def test_numbers_are_kept_as_they_were_written() -> None:
    raw = (
        b'{"specversion":"1.0","id":"1","source":"/a","type":"t","data":{"n":18446744073709551616,"f":1.10}}'
    )
    assert one(raw).alert.annotations == {"n": "18446744073709551616", "f": "1.10"}


def test_data_that_are_many_or_large_are_one_annotation() -> None:
    many = {f"m{n}": n for n in range(65)}
    assert json.loads(one(event(data=many)).alert.annotations["data"]) == many
    large = {"text": "x" * 70_000}
    assert json.loads(one(event(data=large)).alert.annotations["data"]) == large


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"specversion": "0.3"}, "specversion: expected 1.0"),
        ({"id": ""}, "id: missing"),
        ({"source": "a\nb"}, "source: has a control character"),
        ({"type": "x" * 3000}, "type: longer than 2048"),
        ({"subject": "a\x00"}, "subject: has a control character"),
        ({"time": "now"}, "time: expected"),
        ({"time": "2030-01-01T00:00:00Z"}, "time: more than a day ahead"),
        ({"id": 7}, "id: Expected str, got int"),
    ],
)
def test_an_event_that_is_wrong_is_refused_by_itself(change: dict[str, Any], said: str) -> None:
    parsed = read([event(), event(**change)], BATCH)
    assert len(parsed.items) == 1
    assert parsed.rejected[0].index == 1
    assert parsed.rejected[0].error.startswith(said)


@pytest.mark.parametrize("subject", ["%ff", "a%C3", "\udcff"])
def test_headers_that_are_no_utf8_when_decoded_are_refused(subject: str) -> None:
    with pytest.raises(BadBody) as refused:
        read(b"{}", {**BINARY, "ce-subject": subject})
    assert refused.value.status == 400


def test_a_quoted_header() -> None:
    assert binary(b"", subject='"a \\"b\\" %41"').alert.labels == {"subject": 'a "b" A'}


def test_an_attribute_that_is_there_twice_has_to_say_the_same() -> None:
    twice = CIMultiDict([*BINARY.items(), ("ce-id", "8")])
    with pytest.raises(BadBody, match="ce-id is there more than once"):
        read(b"", twice)
    same = CIMultiDict([*BINARY.items(), ("ce-id", "7")])
    assert one(b"", same).key == "ce:~2fa:7"


@pytest.mark.parametrize("kind", ["application/cloudevents+avro", "application/xml"])
def test_other_formats_are_refused(kind: str) -> None:
    with pytest.raises(BadBody) as refused:
        read(b"x", {"Content-Type": kind})
    assert refused.value.status == 415


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none() | st.lists(st.text()), max_size=5))
def test_any_object_is_taken(data: dict[str, Any]) -> None:
    parsed = read(event(data=data))
    if parsed.items:
        assert all(isinstance(text, str) for text in parsed.items[0][1].alert.annotations.values())
    else:  # only what JSON itself has no UTF-8 for
        assert any("\ud800" <= letter <= "\udfff" for letter in json.dumps(data, ensure_ascii=False))

"""All formats on samples with a piece replaced by anything: refused or bounded, and no other error."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from common.alert import decode, encode
from common.settings import Hook, HookAlert
from ingest.event import Event, Reading
from ingest.formats.bodies import MOST_ITEMS, BadBody, Reader
from ingest.formats.hook import Mapped
from ingest.parse import FORMATS
from tests.support.samples import JSON, payload

NOW = 1_772_439_300_000
DAY = 86_400_000
LIMIT = 1024**2
Place: TypeAlias = tuple[str | int, ...]

SAMPLES = [
    ("/api/v2/alerts", "prometheus-api-v2-alerts-post.json"),
    ("/api/v2/alerts", "prometheus-api-v2-alerts-edge.json"),
    ("/v1/alertmanager", "alertmanager-webhook-v4-mixed-resolved.json"),
    ("/v1/grafana", "grafana-webhook.json"),
    ("/v1/events", "cloudevents-structured.json"),
    ("/v1/events", "cloudevents-batch.json"),
    ("/v1/collectd", "collectd5-write-http-json.json"),
    ("/v1/collectd", "collectd6-write-http-json.json"),
    ("/v1/collectd", "collectd-alertmanager-notification.json"),
    ("/v1/telegraf", "telegraf-http-json-batch.json"),
    ("/v1/telegraf", "telegraf-http-json-single.json"),
    ("hook", "uptime-kuma-webhook-down.json"),
    ("hook", "datadog-webhook-custom.json"),
]
HOOK = Mapped(
    Hook(
        name="any",
        alert=HookAlert(
            host="monitor.name || host_name",
            name="monitor.id || alert_id",
            severity="priority",
            timestamp="heartbeat.time || date",
            value="heartbeat.duration",
            labels={"tags": "tags", "msg": "heartbeat.msg"},
        ),
        values={"severity": {"normal": "info"}},
    )
)

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([1 << 63, 1 << 64, 10**30, -1, 0, 1e300, 1_772_439_277, 1_772_439_277_000])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(
        ["", "nan", "Infinity", "-0", "1e999", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "a\n"]
    )
    | st.just("x" * 5000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


def places(document: object, at: Place = ()) -> Iterator[Place]:
    """Where something stands in a document."""
    yield at
    inner = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for name, value in inner:
        yield from places(value, (*at, name))


def put(document: Any, at: Place, value: object) -> Any:
    """A copy of the document with something else at that place."""
    if not at:
        return value
    changed = copy.deepcopy(document)
    within = changed
    for name in at[:-1]:
        within = within[name]
    within[at[-1]] = value
    return changed


def reader(route: str) -> Reader[Any]:
    headers = CIMultiDict(JSON)
    return HOOK.reader(headers) if route == "hook" else FORMATS[route].reader(headers)


@pytest.mark.parametrize(("route", "name"), SAMPLES)
@given(data=st.data())
def test_anything_in_any_place(route: str, name: str, data: st.DataObject) -> None:
    document = json.loads(payload(name))
    at = data.draw(st.sampled_from(list(places(document))))
    body = json.dumps(put(document, at, data.draw(anything))).encode()
    with suppress(BadBody):
        parsed = reader(route)(body, NOW, LIMIT)
        assert len(parsed.items) <= MOST_ITEMS
        for _, item in parsed.items:
            check(item)


def check(item: Event | Reading) -> None:
    """What is let in has a name, is on one line where it is looked for, and can be stored and read again."""
    if isinstance(item, Reading):
        texts, times = [item.host, item.metric], [item.timestamp]
        assert item.host
        assert -(1 << 63) <= item.value < 1 << 64 or isinstance(item.value, float)
        assert item.value == item.value
    else:
        alert = item.alert
        texts, times = [alert.host, alert.name, alert.severity or "s"], [alert.timestamp, alert.since]
        assert decode(encode(alert)) == alert
        assert 0 < len(alert.incident) <= 255
    assert all(texts[1:])
    assert all(text.isprintable() or not set(text) & set(map(chr, range(32))) for text in texts)
    assert all(0 <= time <= NOW + DAY for time in times)

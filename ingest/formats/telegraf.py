"""What Telegraf's `outputs.http` posts, `data_format = "json"`: a metric, or an object with `metrics`. Pure.

Each numeric field becomes a reading `name.field`; texts and truths are left out. The tag `host` is the host,
the others are labels.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from ingest.event import Reading
from ingest.formats import fields
from ingest.formats.bodies import BadBody, Kind, Parsed, batch, elements, flat, single, utf8
from ingest.formats.fields import Labels, Time


class Item(Struct):
    """A metric."""

    name: str
    fields: dict[str, str | bool | int | float | None]
    tags: Labels | None = None
    timestamp: Time = None


class _Holder(Struct):
    metrics: msgspec.Raw = msgspec.Raw()


_item = msgspec.json.Decoder(Item).decode
_holder = msgspec.json.Decoder(_Holder).decode


def items(body: bytes, kind: Kind, now: int, limit: int) -> Parsed[Reading]:
    """`now` in ms, `limit` the bytes of one metric. Raises BadBody."""
    body = utf8(body)
    if kind is not Kind.JSON:
        raise BadBody(400, "expected one object")
    if _has_metrics(body):
        return flat(batch(elements(body, "metrics"), len(body), limit, lambda item: _several(item, now)))
    return flat(single(body, limit, lambda item: _several(item, now)))


def _has_metrics(body: bytes) -> bool:
    try:
        return bool(bytes(_holder(body).metrics))
    except (msgspec.MsgspecError, RecursionError):
        return False  # whatever it is: what reads it next says what is wrong


def _several(item: bytes, now: int) -> list[Reading]:
    return list(_readings(_item(item), now))


def _readings(told: Item, now: int) -> Iterator[Reading]:
    name = fields.ident("name", told.name)
    labels = dict(fields.labels(told.tags or {}))
    host = fields.ident("tags.host", labels.pop("host", ""))
    at = now if told.timestamp is None else fields.time("timestamp", told.timestamp, now)
    for field, value in told.fields.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        fields.refuse_beyond(value, f"fields.{field}"[:100])
        yield Reading(host, fields.ident("fields", f"{name}.{field}"), value, at, labels)

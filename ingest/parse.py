"""A body's bytes to events or readings: pure, with an error for each item that is not one.

Takes the decompressed body of the native format: one object, an array, or one object per line. Returns
`Parsed`; raises `BadBody` when nothing in it can be told apart. What it returns is bounded in every
direction: lengths, counts, nesting, numbers, times. Unknown fields are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import Enum
from functools import lru_cache
from typing import Annotated, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from common.alert import Alert, Status
from ingest import identity
from ingest.event import Event, Reading
from ingest.when import milliseconds

T = TypeVar("T")
MOST_ITEMS = 10_000
MOST_LINES = 10 * MOST_ITEMS  # blank ones among them
CROWDED = 20 * MOST_ITEMS  # commas; an array with fewer is cheap to take apart, whatever it holds
_BOM = b"\xef\xbb\xbf"

Ident: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]
Text: TypeAlias = Annotated[str, Meta(max_length=65_536)]
Time: TypeAlias = int | float | str | None
Labels: TypeAlias = Annotated[
    dict[Annotated[str, Meta(max_length=255)], Annotated[str, Meta(max_length=4096)]], Meta(max_length=64)
]
Annotations: TypeAlias = Annotated[dict[Annotated[str, Meta(max_length=255)], Text], Meta(max_length=64)]


class Kind(Enum):
    """How a body holds its items."""

    JSON = "json"
    LINES = "lines"


class BadBody(Exception):
    """The whole body is refused, with this status."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Rejected(Struct, omit_defaults=True):
    """An item that is not what it should be; `line` from 1 when items are lines."""

    index: int
    error: str
    field: str | None = None
    line: int | None = None


class Parsed(Struct, Generic[T]):
    """`items` with the index each had in the body of `size` bytes; `single` when that was one object.

    `lines` has the line of each index where items are lines.
    """

    items: list[tuple[int, T]]
    rejected: list[Rejected]
    single: bool
    size: int
    lines: dict[int, int] = {}


class _Alert(Struct):
    host: Ident
    name: Ident
    severity: Annotated[str, Meta(max_length=64)] | None = None
    status: Status | None = None
    summary: Text | None = None
    value: int | float | None = None
    timestamp: Time = None
    starts_at: Time = None
    ends_at: Time = None
    labels: Labels | None = None
    annotations: Annotations | None = None
    url: Annotated[str, Meta(max_length=2048)] | None = None


class _Reading(Struct):
    host: Ident
    metric: Ident
    value: int | float | None = None
    percent: int | float | None = None
    timestamp: Time = None
    labels: Labels | None = None


class _Fault(Exception):
    """One item is wrong."""

    def __init__(self, field: str | None, error: str) -> None:
        super().__init__(field, error)
        self.field = field
        self.error = f"{field}: {error}" if field else error


_alert = msgspec.json.Decoder(_Alert).decode
_reading = msgspec.json.Decoder(_Reading).decode
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


@lru_cache(maxsize=256)
def kind(content_type: str | None) -> Kind:
    """How a body of this Content-Type is read; none means JSON. Raises BadBody (415)."""
    media, *parameters = (part.strip().lower() for part in (content_type or "").split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip(' "') not in {"utf-8", "utf8"}:
            raise BadBody(415, f"charset {value.strip()[:64]} is not supported; send UTF-8")
    if media in {"application/x-ndjson", "application/ndjson"}:
        return Kind.LINES
    if media in {"", "application/json", "text/json"} or re.fullmatch(r"application/[^/\s]+\+json", media):
        return Kind.JSON
    raise BadBody(415, f"{media[:64]} is not supported; send application/json or application/x-ndjson")


def alerts(body: bytes, kind: Kind, now: int, limit: int) -> Parsed[Event]:
    """Native alerts; `now` in ms, `limit` the bytes of one item. Raises BadBody."""
    return _parse(body, kind, limit, lambda item: _event(item, now))


def readings(body: bytes, kind: Kind, now: int, limit: int) -> Parsed[Reading]:
    """Native readings; `now` in ms, `limit` the bytes of one item. Raises BadBody."""
    return _parse(body, kind, limit, lambda item: _measured(item, now))


def _parse(body: bytes, kind: Kind, limit: int, read: Callable[[bytes], T]) -> Parsed[T]:
    body = _utf8(body)
    if kind is Kind.LINES:
        return _batch(_lines(body), len(body), limit, read)
    if body.lstrip()[:1] == b"[":
        return _batch(_elements(body), len(body), limit, read)
    if len(body) > limit:
        raise BadBody(413, f"the item is larger than {limit} bytes")
    try:
        return Parsed([(0, _checked(read, body))], [], True, len(body))
    except _Fault as fault:
        return Parsed([], [Rejected(0, fault.error, fault.field)], True, len(body))


def _utf8(body: bytes) -> bytes:
    if body.startswith(_BOM):
        body = body[len(_BOM) :]
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as fault:
            raise BadBody(400, f"the body is not UTF-8 (byte {fault.start})") from None
    if not body or body.isspace():
        raise BadBody(400, "the body is empty")
    return body


def _lines(body: bytes) -> Iterator[tuple[int | None, bytes]]:
    lines = body.split(b"\n", MOST_LINES)
    if len(lines) > MOST_LINES and lines.pop().strip():
        raise _too_many("lines", MOST_LINES)
    for number, line in enumerate(lines, 1):
        if line and not line.isspace():
            yield number, line


def _elements(body: bytes) -> Iterator[tuple[int | None, bytes]]:
    try:
        if body.count(b",") > CROWDED:
            _bounded_array()(body)
        array = _array(body)
    except msgspec.ValidationError:
        raise _too_many("items", MOST_ITEMS) from None
    except (msgspec.DecodeError, RecursionError) as fault:
        raise BadBody(400, _said(fault)[1]) from None
    for element in array:
        yield None, bytes(element)


@lru_cache(maxsize=1)
def _bounded_array() -> Callable[[bytes], object]:
    """Stops at the first item too many; to take apart millions of them needs seconds and half a gigabyte."""
    items = [(f"item_{n}", msgspec.Raw, msgspec.Raw()) for n in range(MOST_ITEMS)]
    array = msgspec.defstruct("Items", items, array_like=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(array).decode


def _too_many(what: str, most: int) -> BadBody:
    return BadBody(413, f"more than {most} {what}; send them in several requests")


def _batch(
    items: Iterator[tuple[int | None, bytes]], size: int, limit: int, read: Callable[[bytes], T]
) -> Parsed[T]:
    parsed: Parsed[T] = Parsed([], [], False, size)
    for index, (line, item) in enumerate(items):
        if index == MOST_ITEMS:
            raise _too_many("items", MOST_ITEMS)
        try:
            if len(item) > limit:
                raise _Fault(None, f"larger than {limit} bytes")
            parsed.items.append((index, _checked(read, item)))
            if line is not None:
                parsed.lines[index] = line
        except _Fault as fault:
            parsed.rejected.append(Rejected(index, fault.error, fault.field, line))
    return parsed


def _checked(read: Callable[[bytes], T], item: bytes) -> T:
    """`read`, with everything that a decoder may raise told as a fault of the item."""
    try:
        return read(item)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise _Fault(*_said(fault)) from None


def _event(item: bytes, now: int) -> Event:
    told = _alert(item)
    host, name, severity, labels = told.host, told.name, told.severity or None, told.labels
    if not (host.isprintable() and name.isprintable() and (severity is None or severity.isprintable())):
        _refuse_controls(host=host, name=name, severity=severity or "")
    labels = _labels(labels) if labels else {}
    if told.value is not None:
        _refuse_beyond(told.value, "value")
    starts_at = None if told.starts_at is None else _time("starts_at", told.starts_at, now)
    ends_at = None if told.ends_at is None else _time("ends_at", told.ends_at, now)
    if starts_at is not None and ends_at is not None and ends_at < starts_at:
        raise _Fault("ends_at", "before starts_at")
    return Event(
        Alert(
            incident=identity.incident(host, name, labels),
            host=host,
            name=name,
            status=told.status or Status.FIRING,
            severity=severity,
            summary=told.summary,
            value=told.value,
            labels=labels,
            annotations=told.annotations or {},
            url=told.url,
            timestamp=now if told.timestamp is None else _time("timestamp", told.timestamp, now),
            starts_at=starts_at,
            ends_at=ends_at,
        )
    )


def _measured(item: bytes, now: int) -> Reading:
    told = _reading(item)
    if not (told.host.isprintable() and told.metric.isprintable()):
        _refuse_controls(host=told.host, metric=told.metric)
    value = told.percent if told.value is None else told.value
    if value is None:
        raise _Fault("value", "missing (or percent)")
    _refuse_beyond(value, "percent" if told.value is None else "value")
    return Reading(
        host=told.host,
        metric=told.metric,
        value=value,
        timestamp=now if told.timestamp is None else _time("timestamp", told.timestamp, now),
        labels=_labels(told.labels) if told.labels else {},
    )


def _time(field: str, told: int | float | str, now: int) -> int:
    try:
        return milliseconds(told, now)
    except ValueError as fault:
        raise _Fault(field, str(fault)) from None


def _labels(labels: dict[str, str]) -> dict[str, str]:
    """Without those that are empty: they say as much as none."""
    for label, value in labels.items():
        if not label.isprintable():
            _refuse_controls(labels=label)
        if not label or not value:
            return {label: value for label, value in labels.items() if label and value}
    return labels


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _refuse_controls(**fields: str) -> None:
    """Unprintable letters of other scripts are fine; what ends a line or a C string is not."""
    for field, text in fields.items():
        if _CONTROL.search(text):
            raise _Fault(field, "has a control character")


def _refuse_beyond(value: int | float, field: str) -> None:
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise _Fault(field, "beyond 64 bits")


_PATH = re.compile(r"(?P<error>.*?) - at (?:`key` in )?`\$(?P<path>.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<path>[^`]*)`")


def _said(fault: Exception) -> tuple[str | None, str]:
    """Field and error in a decoder's words."""
    if isinstance(fault, RecursionError):
        return None, "nested too deeply"
    if isinstance(fault, UnicodeDecodeError):
        return None, "not UTF-8"
    text = str(fault)
    if missing := _MISSING.match(text):
        return missing["path"], "missing"
    if at := _PATH.fullmatch(text):
        field = at["path"].strip(".") or None
        return field, at["error"].replace("`", "")
    return None, text.replace("`", "")

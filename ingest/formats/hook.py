"""Any other sender's JSON, by expressions in the configuration: one object, an array, lines, or a form with
JSON in a field. Pure.

A hook is compiled once per configuration; what its expressions find becomes a native alert or reading, and is
checked as one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import parse_qs

import msgspec
from multidict import MultiMapping

from common.expression import Unfit, compiled
from common.settings import Hook, HookAlert, HookReading
from ingest.event import Event, Reading, Source
from ingest.formats import bodies, fields, native
from ingest.formats.bodies import BadBody, Fault, Kind, Parsed

Find: TypeAlias = Callable[[object], Any]
Fields: TypeAlias = dict[str, Find | dict[str, Find]]
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
_BOUNDARY = re.compile(r'boundary="?([^";,]{1,70})', re.IGNORECASE)
_BLANK_LINE = re.compile(rb"\r?\n\r?\n")
ANY_OTHER = "*"  # in a table of `values`


class Mapped:
    """A hook, compiled."""

    def __init__(self, hook: Hook) -> None:
        self._form = hook.form
        self._items = None if hook.items is None else compiled(hook.items)
        self._values = hook.values
        told = hook.alert or hook.reading
        self._fields = {} if told is None else _compiled(told)
        self._make = _event if hook.alert is not None else _reading

    def reader(self, headers: MultiMapping[str]) -> bodies.Reader[Event | Reading]:
        """What reads the body that has these headers. Raises BadBody."""
        content_type = headers.get("Content-Type")
        if self._form is not None and (content_type or "").lower().startswith(FORMS):
            field = self._form
            return lambda body, now, limit: self._read(
                _field(body, content_type or "", field), Kind.JSON, now, limit
            )
        kind = bodies.kind(content_type, "text/plain")
        return lambda body, now, limit: self._read(body, kind, now, limit)

    def _read(self, body: bytes, kind: Kind, now: int, limit: int) -> Parsed[Event | Reading]:
        def read(item: bytes) -> Event | Reading:
            return self._make(self._told(msgspec.json.decode(item)), now)

        find = self._items
        if find is None:
            return bodies.flat(bodies.items(body, kind, limit, lambda item: [read(item)]))
        if kind is Kind.LINES:
            several = bodies.items(body, kind, limit, lambda line: [read(one) for one in _chosen(line, find)])
            return bodies.flat(several)
        body = bodies.utf8(body)
        try:
            chosen = bodies.checked(lambda whole: _chosen(whole, find), body)
        except Fault as fault:
            raise BadBody(400, fault.error) from None
        return bodies.batch(((None, item) for item in chosen), len(body), limit, read)

    def _told(self, item: object) -> dict[str, Any]:
        """What the expressions find in an item, by the names of the native format."""
        told: dict[str, Any] = {}
        for field, find in self._fields.items():
            if isinstance(find, dict):
                found = {name: _text(_found(field, one, item)) for name, one in find.items()}
                told[field] = {name: text for name, text in found.items() if text is not None}
            else:
                told[field] = self._valued(field, _found(field, find, item))
        return {field: value for field, value in told.items() if value is not None}

    def _valued(self, field: str, value: object) -> object:
        """By the hook's table for this field, where there is one."""
        table = self._values.get(field)
        text = _text(value)
        if table is None or text is None:
            return value
        return table.get(text, table.get(ANY_OTHER, text))


def _compiled(told: HookAlert | HookReading) -> Fields:
    made: Fields = {}
    for field in told.__struct_fields__:
        value = getattr(told, field)
        if isinstance(value, Mapping):
            made[field] = {name: compiled(text) for name, text in value.items()}
        elif value is not None:
            made[field] = compiled(value)
    return made


def _chosen(document: bytes, find: Find) -> list[bytes]:
    """The items that an expression finds in a document."""
    found = _found("items", find, msgspec.json.decode(document))
    items = [] if found is None else found if isinstance(found, list) else [found]
    return [msgspec.json.encode(item) for item in items]


def _found(field: str, find: Find, item: object) -> Any:
    try:
        return find(item)
    except Unfit as fault:
        raise Fault(field, str(fault)) from None


def _event(told: dict[str, Any], now: int) -> Event:
    for field in ("host", "name", "severity", "summary", "url"):
        if field in told:
            told[field] = _text(told[field])
    if "value" in told:
        told["value"] = fields.number("value", _number("value", told["value"]))
    for field in ("timestamp", "starts_at", "ends_at"):
        if field in told:
            told[field] = _time(told[field])
    return native.event(msgspec.convert(told, native.AlertBody), now, Source.HOOK.value)


def _reading(told: dict[str, Any], now: int) -> Reading:
    for field in ("host", "metric"):
        if field in told:
            told[field] = _text(told[field])
    if "value" in told:
        told["value"] = fields.number("value", _number("value", told["value"]))
    if "timestamp" in told:
        told["timestamp"] = _time(told["timestamp"])
    return native.reading(msgspec.convert(told, native.ReadingBody), now)


def _number(field: str, value: object) -> str | int | float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Fault(field, "expected a number")
    return value


def _time(value: object) -> object:
    """A text of digits is a number."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) <= 20 else value


def _text(value: object) -> str | None:
    """What is no text as JSON has it."""
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


def _field(body: bytes, content_type: str, name: str) -> bytes:
    """The JSON in a form's field. Raises BadBody."""
    if content_type.lower().startswith(FORMS[0]):
        try:
            found = parse_qs(body.decode(), max_num_fields=100, errors="strict").get(name)
        except ValueError as fault:
            raise BadBody(400, f"the form can't be read: {fault}") from None
        field = found[0].encode() if found else None
    else:
        field = _part(body, content_type, name)
    if field is None:
        raise BadBody(400, f"the form has no field {name}")
    return field


def _part(body: bytes, content_type: str, name: str) -> bytes | None:
    """A part of a multipart form; its own headers say no more than its name."""
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        return None
    wanted = re.compile(
        rb'content-disposition:[^\r\n]*[; ]name="?%b"?(?:[;\s]|$)' % re.escape(name.encode()), re.I
    )
    for part in body.split(b"--" + boundary[1].encode(errors="surrogateescape")):
        head, *content = _BLANK_LINE.split(part, 1)
        if content and wanted.search(head):
            return content[0].strip()
    return None

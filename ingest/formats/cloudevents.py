"""CloudEvents 1.0 over HTTP: structured, a batch, or binary, where attributes are headers. Pure.

An event says itself what makes it the same: source and id are its key, source and subject (or type) its
incident. Its data become annotations; `severity`, `status` and `summary` in it are the alert's. Its extension
`traceparent` is its trace.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct, structs
from multidict import MultiMapping

from common import trace
from common.alert import Alert, Status
from ingest import identity
from ingest.event import Event, Source
from ingest.formats import bodies, fields
from ingest.formats.bodies import BadBody, Fault

LONGEST = 2048  # characters of an attribute; what is made of them for a key is shorter
MOST_MEMBERS, LONGEST_NAME, LONGEST_MEMBER = 64, 255, 65_536  # of data, to be an annotation each
ATTRIBUTES = ("specversion", "id", "source", "type", "subject", "time")

Reader = bodies.Reader[Event]


class Item(Struct):
    """An event in structured mode."""

    specversion: str
    id: str
    source: str
    type: str
    subject: str | None = None
    time: str | None = None
    data: msgspec.Raw = msgspec.Raw()
    data_base64: str | None = None
    traceparent: Any = None  # what is none is left out, and no fault
    tracestate: Any = None


_item = msgspec.json.Decoder(Item).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_text = msgspec.json.Decoder(str).decode


def reader(headers: MultiMapping[str]) -> Reader:
    """What reads the body that has these headers. Raises BadBody."""
    content_type = headers.get("Content-Type")
    media = (content_type or "").partition(";")[0].strip().lower()
    if "ce-specversion" in headers and not media.startswith("application/cloudevents"):
        attributes = {name: _header(headers, name) for name in ATTRIBUTES}
        context = _context(headers.getall("ce-traceparent", ()), headers.getall("ce-tracestate", ()))
        return lambda body, now, limit: bodies.single(
            body, limit, lambda data: _traced(_binary(attributes, media, data, now), context)
        )
    kind = bodies.kind(content_type)
    return lambda body, now, limit: bodies.items(body, kind, limit, lambda item: _structured(item, now))


def _header(headers: MultiMapping[str], name: str) -> str | None:
    told = headers.getall(f"ce-{name}", None)
    if told is None:
        return None
    if len(set(told)) > 1:
        raise BadBody(400, f"ce-{name} is there more than once, with different values")
    text = told[0].strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    try:
        text = unquote(text, errors="strict")
        text.encode()
    except UnicodeError:
        raise BadBody(400, f"ce-{name} is not UTF-8 when percent-decoded") from None
    return text


def _structured(item: bytes, now: int) -> Event:
    told = _item(item)
    attributes = {name: getattr(told, name) for name in ATTRIBUTES}
    context = _context([told.traceparent], [told.tracestate])
    if told.data_base64 is not None:
        event = _event(attributes, {}, {"data_base64": told.data_base64}, now)
    else:
        event = _with_json(attributes, bytes(told.data), now)
    return _traced(event, context)


def _context(parents: Sequence[Any], states: Sequence[Any]) -> str | None:
    """The event's own trace: its extension `traceparent`."""
    given = [parent for parent in parents if isinstance(parent, str)]
    return trace.context(given, [state for state in states if isinstance(state, str)]) if given else None


def _traced(event: Event, context: str | None) -> Event:
    return event if context is None else structs.replace(event, trace=context)


def _binary(attributes: Mapping[str, str | None], media: str, data: bytes, now: int) -> Event:
    if not data:
        return _event(attributes, {}, {}, now)
    if media in {"application/json", "text/json"} or media.endswith("+json"):
        return _with_json(attributes, data.removeprefix(b"\xef\xbb\xbf"), now)
    if media.startswith("text/"):
        try:
            return _event(attributes, {}, {"data": data.decode()}, now)
        except UnicodeDecodeError:
            raise Fault("data", "not UTF-8") from None
    return _event(attributes, {}, {"data_base64": base64.b64encode(data).decode()}, now)


def _with_json(attributes: Mapping[str, str | None], data: bytes, now: int) -> Event:
    """An object's members are annotations, as they are written when they are not texts."""
    if not data or data == b"null":
        return _event(attributes, {}, {}, now)
    if data.lstrip()[:1] != b"{":
        whole = msgspec.json.decode(data)
        return _event(attributes, {}, {"data": whole if isinstance(whole, str) else data.decode()}, now)
    members = {name: _plain(bytes(raw)) for name, raw in _members(data).items()}
    small = len(members) <= MOST_MEMBERS and all(
        len(name) <= LONGEST_NAME and len(text) <= LONGEST_MEMBER for name, text in members.items()
    )
    texts = {name: text for name, text in members.items() if text != "null"}
    return _event(attributes, texts, texts if small else {"data": data.decode()}, now)


def _plain(raw: bytes) -> str:
    return _text(raw) if raw.lstrip()[:1] == b'"' else raw.decode()


def _event(
    attributes: Mapping[str, str | None], data: Mapping[str, str], annotations: dict[str, str], now: int
) -> Event:
    version = attributes["specversion"]
    if version != "1.0":
        raise Fault("specversion", f"expected 1.0, got {version!r:.40}")
    source, name, event_id = (
        fields.ident(field, attributes[field] or "", LONGEST) for field in ("source", "type", "id")
    )
    subject = attributes["subject"]
    if subject:
        fields.ident("subject", subject, LONGEST)
    over = data.get("status") == Status.RESOLVED
    severity = data.get("severity")
    if severity is not None and not (0 < len(severity) <= 64 and severity.isprintable()):
        severity = None
    time = attributes["time"]
    return Event(
        Alert(
            incident=identity.event_incident(source, subject or name),
            host=source,
            name=name,
            status=Status.RESOLVED if over else Status.FIRING,
            severity=severity,
            summary=data.get("summary"),
            labels={"subject": subject} if subject else {},
            annotations=annotations,
            timestamp=fields.time("time", time, now) if time else now,
            source=Source.CLOUDEVENT.value,
        ),
        key=identity.event_key(source, event_id, over),
    )

"""A body's bytes to its items, for every format: pure, with an error for each item that is not one.

Takes the decompressed body and what reads one item's bytes; returns `Parsed`, raises `BadBody` when
nothing in it can be told apart. How many items there are and how deep they nest is bounded; what is in them
is the formats' business (`fields.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import lru_cache
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")
MOST_ITEMS = 10_000
MOST_LINES = 10 * MOST_ITEMS  # blank ones among them
CROWDED = 20 * MOST_ITEMS  # commas; an array with fewer is cheap to take apart, whatever it holds
_BOM = b"\xef\xbb\xbf"
_JSON_SUFFIX = re.compile(r"application/[^/\s]+\+json")

Numbered: TypeAlias = tuple[int | None, bytes]  # the line, where items are lines


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


Reader: TypeAlias = Callable[[bytes, int, int], Parsed[T]]  # of a body, now in ms, bytes of one item


class Fault(Exception):
    """One item is wrong."""

    def __init__(self, field: str | None, error: str) -> None:
        super().__init__(field, error)
        self.field = field
        self.error = f"{field}: {error}" if field else error


@lru_cache(maxsize=256)
def kind(content_type: str | None, also: str = "") -> Kind:
    """How a body of this Content-Type is read; none, and `also`, mean JSON. Raises BadBody (415)."""
    media, *parameters = (part.strip().lower() for part in (content_type or "").split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip(' "') not in {"utf-8", "utf8", "us-ascii"}:
            raise BadBody(415, f"charset {value.strip()[:64]} is not supported; send UTF-8")
    if media in {"application/x-ndjson", "application/ndjson"}:
        return Kind.LINES
    if media in {"", "application/json", "text/json", also} or _JSON_SUFFIX.fullmatch(media):
        return Kind.JSON
    raise BadBody(415, f"{media[:64]} is not supported; send application/json or application/x-ndjson")


def items(body: bytes, kind: Kind, limit: int, read: Callable[[bytes], T]) -> Parsed[T]:
    """One object, an array of them, or one per line; `limit` in bytes of one item. Raises BadBody."""
    body = utf8(body)
    if kind is Kind.LINES:
        return batch(_lines(body), len(body), limit, read)
    if body.lstrip()[:1] == b"[":
        return batch(elements(body), len(body), limit, read)
    return single(body, limit, read)


def single(body: bytes, limit: int, read: Callable[[bytes], T]) -> Parsed[T]:
    """The whole body is one item. Raises BadBody."""
    if len(body) > limit:
        raise BadBody(413, f"the item is larger than {limit} bytes")
    try:
        return Parsed([(0, checked(read, body))], [], True, len(body))
    except Fault as fault:
        return Parsed([], [Rejected(0, fault.error, fault.field)], True, len(body))


def batch(items: Iterable[Numbered], size: int, limit: int, read: Callable[[bytes], T]) -> Parsed[T]:
    """Each item by itself. Raises BadBody: too many."""
    parsed: Parsed[T] = Parsed([], [], False, size)
    for index, (line, item) in enumerate(items):
        if index == MOST_ITEMS:
            raise _too_many("items", MOST_ITEMS)
        try:
            if len(item) > limit:
                raise Fault(None, f"larger than {limit} bytes")
            parsed.items.append((index, checked(read, item)))
            if line is not None:
                parsed.lines[index] = line
        except Fault as fault:
            parsed.rejected.append(Rejected(index, fault.error, fault.field, line))
    return parsed


def flat(parsed: Parsed[list[T]]) -> Parsed[T]:
    """Where an item holds several: each of them, with the index of its item. Raises BadBody: too many."""
    found = [(index, one) for index, several in parsed.items for one in several]
    if len(found) > MOST_ITEMS:
        raise _too_many("values", MOST_ITEMS)
    return Parsed(found, parsed.rejected, False, parsed.size, parsed.lines)


def utf8(body: bytes) -> bytes:
    """Without a byte order mark. Raises BadBody for what is empty, or other than UTF-8."""
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


def elements(body: bytes, member: str = "") -> Iterator[Numbered]:
    """Those of the array that the body is, or that its `member` is. Raises BadBody."""
    try:
        if body.count(b",") > CROWDED:
            _decoder(member, _bounded())(body)
        decoded = _decoder(member, list[msgspec.Raw])(body)
    except (msgspec.MsgspecError, RecursionError) as fault:
        field, error = said(fault)
        if error.startswith("Expected array of at most length"):
            raise _too_many("items", MOST_ITEMS) from None
        raise BadBody(400, f"{field}: {error}" if field else error) from None
    array = getattr(decoded, member) if member else decoded
    for element in array:
        yield None, bytes(element)


@lru_cache(maxsize=1)
def _bounded() -> Any:
    """Stops at the first item too many; to take apart millions of them needs seconds and half a gigabyte."""
    places = [(f"item_{n}", msgspec.Raw, msgspec.Raw()) for n in range(MOST_ITEMS)]
    return msgspec.defstruct("Items", places, array_like=True, forbid_unknown_fields=True)


@lru_cache(maxsize=16)
def _decoder(member: str, array: Any) -> Callable[[bytes], Any]:
    shape = msgspec.defstruct("Holder", [(member, array)]) if member else array
    return msgspec.json.Decoder(shape).decode


def _lines(body: bytes) -> Iterator[Numbered]:
    lines = body.split(b"\n", MOST_LINES)
    if len(lines) > MOST_LINES and lines.pop().strip():
        raise _too_many("lines", MOST_LINES)
    for number, line in enumerate(lines, 1):
        if line and not line.isspace():
            yield number, line


def _too_many(what: str, most: int) -> BadBody:
    return BadBody(413, f"more than {most} {what}; send them in several requests")


def checked(read: Callable[[bytes], T], item: bytes) -> T:
    """`read`, with everything that a decoder may raise told as a fault of the item."""
    try:
        return read(item)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise Fault(*said(fault)) from None


_PATH = re.compile(r"(?P<error>.*?) - at (?:`key` in )?`\$(?P<path>.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<path>[^`]*)`")


def said(fault: Exception) -> tuple[str | None, str]:
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

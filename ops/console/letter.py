"""A dead letter as pages show it. Takes a Letter; returns a Row, whatever its alert looks like. Pure."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from ops.letters import Letter
from ops.text import moment


class Told(Struct):
    """What a row shows of an alert; other fields, and those of another type, are left out."""

    host: str = ""
    name: str = ""
    status: str = ""
    severity: str | None = None
    summary: str | None = None
    url: str | None = None


class Row(Struct, frozen=True):
    """One letter; `alert` is empty for one that nobody can read, or that is an object."""

    letter: Letter
    alert: Told

    @property
    def value(self) -> str:
        """What its checkbox says."""
        return f"{self.letter.destination}/{self.letter.id}"

    @property
    def is_object(self) -> bool:
        """Whether its alert is kept outside of Redis."""
        return b"object" in self.letter.fields

    @property
    def reason(self) -> str:
        """With the status of the last answer."""
        return " ".join(filter(None, (self.letter.text("reason"), self.letter.text("status"))))

    def time(self, name: str) -> str:
        """A field that is one, for people."""
        told = self.letter.text(name)
        return moment(int(told)) if told.isdecimal() else told


_decode = msgspec.json.Decoder(dict[str, Any]).decode


def row(letter: Letter) -> Row:
    """As it is shown."""
    try:
        alert = {} if b"object" in letter.fields else _decode(letter.fields.get(b"alert", b""))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        alert = {}
    texts = {name: alert[name] for name in Told.__struct_fields__ if isinstance(alert.get(name), str)}
    return Row(letter, Told(**texts))


def pretty(stored: bytes) -> str:
    """JSON with line breaks, else the text as it is."""
    try:
        msgspec.json.decode(stored)  # format alone believes everything
        return msgspec.json.format(stored, indent=2).decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return stored.decode("utf-8", "replace")


def picked(values: list[str]) -> dict[str, tuple[str, ...]]:
    """Ids by destination, of checkboxes. Raises ValueError."""
    found: dict[str, list[str]] = {}
    for value in values:
        name, slash, entry_id = value.rpartition("/")
        first, dash, second = entry_id.partition("-")
        if not (slash and dash and first.isdecimal() and second.isdecimal() and len(entry_id) < 42):
            raise ValueError(value)
        found.setdefault(name, []).append(entry_id)
    return {name: tuple(dict.fromkeys(ids)) for name, ids in found.items()}


def fields(letter: Letter) -> dict[str, Any]:
    """What else is in it, by name, without the alert."""
    return {
        name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for name, value in letter.fields.items()
        if name != b"alert"
    }

"""The alert as it is stored and sent: one struct, one encoding.

`ingest` makes it from a sender's body, puts it into the `alert` field of a stream entry as JSON, and
`dispatcher` reads it back. Scripts never look inside. Times are milliseconds since the epoch.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec import Struct


class Status(StrEnum):
    """Whether something is wrong or over."""

    FIRING = "firing"
    RESOLVED = "resolved"


class Alert(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened, normalised. `key` and `incident` are filled in by observe."""

    key: str = ""
    incident: str
    host: str
    name: str
    status: Status = Status.FIRING
    severity: str | None = None
    summary: str | None = None
    value: int | float | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    url: str | None = None
    timestamp: int
    starts_at: int | None = None
    ends_at: int | None = None
    source: str = "native"
    v: int = 1

    @property
    def since(self) -> int:
        """The event's place in time, ms: an episode's start or end when told, else the timestamp."""
        told = self.ends_at if self.status is Status.RESOLVED else self.starts_at
        return self.timestamp if told is None else told


VERSION = 1
encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Alert)


class Malformed(Exception):
    """The stored form can't be read, by anybody."""


class TooNew(Exception):
    """The stored form was written by a newer version; a newer replica will read it."""


class _Versioned(Struct):
    v: int = 1


_version = msgspec.json.Decoder(_Versioned)


def decode(stored: bytes) -> Alert:
    """Read the `alert` field of an entry. Raises Malformed or TooNew."""
    try:
        alert = _decoder.decode(stored)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        if version_of(stored) > VERSION:
            raise TooNew from fault
        raise Malformed(str(fault)) from fault
    if alert.v > VERSION:
        raise TooNew
    return alert


def version_of(stored: bytes) -> int:
    """What a stored form says of itself; 0 when it says nothing."""
    try:
        return _version.decode(stored).v
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 0

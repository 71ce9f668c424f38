"""What travels in place of an alert that is too large for Redis: the claim check.

Made by append, put into the `alert` field of an entry whose field `object` has the object's name; read by
dispatcher and by the operator's commands. It has what claim must know, so that only what is sent is fetched.
"""

from __future__ import annotations

import re
import secrets
from hashlib import sha256

import msgspec
from msgspec import Struct

from common.alert import Alert, Malformed, Status, TooNew, version_of

VERSION = 2  # of the stored form; 1 is the alert itself, and who knows only that hands this back
NAME = re.compile(r"[0-9a-f]{32}")


class Reference(Struct, frozen=True, kw_only=True):
    """`object` is its random name, `size` bytes and `sha256` (hex) are those of the alert's stored form;
    `incident`, `status` and `since` (ms) are the alert's."""

    object: str
    size: int
    sha256: str
    incident: str
    status: Status
    since: int
    v: int = VERSION

    @property
    def stand_in(self) -> Alert:
        """The alert as far as it is known here."""
        return Alert(incident=self.incident, host="", name="", status=self.status, timestamp=self.since)

    def fits(self, stored: bytes) -> bool:
        """Whether that is what was put there."""
        return len(stored) == self.size and sha256(stored).hexdigest() == self.sha256


encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Reference)


def refer(alert: Alert, stored: bytes) -> Reference:
    """A reference with a name of its own to an alert's stored form."""
    return Reference(
        object=secrets.token_hex(16),
        size=len(stored),
        sha256=sha256(stored).hexdigest(),
        incident=alert.incident,
        status=alert.status,
        since=alert.since,
    )


def decode(stored: bytes, name: bytes) -> Reference:
    """Read the `alert` field of an entry whose `object` field is `name`. Raises Malformed or TooNew."""
    try:
        found = _decoder.decode(stored)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        if version_of(stored) > VERSION:
            raise TooNew from fault
        raise Malformed(str(fault)) from fault
    if found.v > VERSION:
        raise TooNew
    if found.object.encode() != name or not NAME.fullmatch(found.object) or found.size < 0:
        raise Malformed("a reference to an object must be that of the field object")
    return found

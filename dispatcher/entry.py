"""A stream entry as it is taken, and what is in it.

Takes raw fields; returns an Entry. `read` returns the Delivery that a destination is given, and raises
Malformed (nobody can read it) or TooNew (a newer replica can).
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from common import reference, trace
from common.alert import Malformed, decode
from common.outcomes import Reason
from dispatcher.destinations.base import Delivery

WIDEST = 4096  # bytes of a foreign entry that its dead letter keeps
TOO_NEW = 5.0  # seconds until a newer replica may have taken it
MOST_FIELDS = 100  # what a script can put back into the stream
_KNOWN = (
    b"key",
    b"alert",
    b"attempt",
    b"first_at",
    b"object",
    b"replay_of",
    b"force",
    b"trace",
    b"throttled",
    b"alone",
    b"reason",
    b"error",
    b"status",
)
_REASONS = frozenset(reason.encode() for reason in Reason)


class Entry(Struct, frozen=True):
    """One entry handed out to this replica; `deliveries` tells how often it has been handed out by now."""

    id: str
    fields: dict[bytes, bytes]
    deliveries: int = 1

    @property
    def key(self) -> str:
        """Its key as far as it is text; "" when it has none."""
        return self.fields.get(b"key", b"").decode("utf-8", "replace")

    @property
    def attempts(self) -> int:
        """Failures so far; 0 when the field makes no sense."""
        told = self.fields.get(b"attempt", b"0")
        return int(told) if _is_number(told) else 0

    @property
    def throttles(self) -> int:
        """Refusals with Retry-After in a row so far; 0 when the field makes no sense."""
        told = self.fields.get(b"throttled", b"0")
        return int(told) if _is_number(told) else 0

    @property
    def object(self) -> str | None:
        """The name of the object that its alert is in, if it is in one."""
        told = self.fields.get(b"object")
        return None if told is None else told.decode("utf-8", "replace")

    @property
    def alone(self) -> bool:
        """Whether a batch with it was refused, so that it goes in a request of its own."""
        return b"alone" in self.fields


def from_reply(entry_id: bytes, flat: list[bytes], deliveries: int = 1) -> Entry:
    """An entry from a script's reply."""
    pairs = iter(flat)
    return Entry(entry_id.decode(), dict(zip(pairs, pairs, strict=True)), deliveries)


def read(entry: Entry) -> Delivery:
    """What a destination is given. Raises Malformed or TooNew."""
    fields = entry.fields
    stored, key = fields.get(b"alert"), fields.get(b"key")
    first_at, failures = fields.get(b"first_at", b""), fields.get(b"attempt", b"0")
    if stored is None or not key:
        raise Malformed("an entry needs the fields key and alert")
    if not _is_number(first_at) or not _is_number(failures):
        raise Malformed("first_at and attempt must be whole numbers")
    if len(fields) > MOST_FIELDS:
        raise Malformed(f"more than {MOST_FIELDS} fields")
    if b"reason" in fields and fields[b"reason"] not in _REASONS:
        raise Malformed("an unknown reason")
    name = fields.get(b"object")
    refers = None if name is None else reference.decode(stored, name)
    alert = decode(stored) if refers is None else refers.stand_in
    try:
        return Delivery(
            entry_id=entry.id,
            deliveries=entry.deliveries,
            key=key.decode(),
            alert=alert,
            reference=refers,
            attempt=int(failures) + 1,
            first_at=int(first_at),
            replay_of=_text(fields.get(b"replay_of")),
            force=b"force" in fields,
            trace=trace.stored(fields.get(b"trace")),
        )
    except UnicodeDecodeError as fault:
        raise Malformed(str(fault)) from fault


def salvage(entry: Entry) -> bytes:
    """What a malformed entry's dead letter shows as its alert: the field itself, else all fields as JSON."""
    stored = entry.fields.get(b"alert")
    if stored is not None:
        return stored
    told = {
        name.decode("utf-8", "replace"): value[:WIDEST].decode("utf-8", "replace")
        for name, value in entry.fields.items()
    }
    return msgspec.json.encode(told)[:WIDEST]


def known(entry: Entry) -> dict[bytes, bytes]:
    """Its fields without those that nobody here wrote."""
    return {name: entry.fields[name] for name in _KNOWN if name in entry.fields}


def _is_number(told: bytes) -> bool:
    """Whole, and no longer than a time in ms may be."""
    return told.isdigit() and len(told) <= 15


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()

"""Incident and key of an event: pure text from pure values, so that a retry by anybody carries the same.

Parts are escaped to `A-Za-z0-9_-` and `~hh`, joined by `:`, and bounded to 255 bytes, so that a key is
also a URL path and a header. Where two kinds of part could be taken for each other (a host called `id`,
a severity called `resolved` or `2`), the first byte is escaped too. Nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

import msgspec

from common.bounded import bounded

_SAFE = re.compile(r"[A-Za-z0-9_-]*")
_BYTES = [
    chr(byte) if _SAFE.fullmatch(chr(byte)) and byte < 128 else f"~{byte:02x}" for byte in range(256)
]  # what each byte of UTF-8 becomes
_PREFIXES = frozenset({"am", "ce", "id"})  # what keys of other sources begin with
_encode = msgspec.json.Encoder().encode


@lru_cache(maxsize=8192)
def escape(part: str) -> str:
    """The part in `A-Za-z0-9_-`, each other byte of its UTF-8 as `~` and two lower-case hex digits."""
    if _SAFE.fullmatch(part):
        return part
    return "".join([_BYTES[byte] for byte in part.encode()])


def incident(host: str, name: str, labels: Mapping[str, str], by: Sequence[str] | None = None) -> str:
    """`host:name`, and `:` a short hash of the labels when any count; with `by` only those it names."""
    start = f"{_first_escaped(host) if host in _PREFIXES else escape(host)}:{escape(name)}"
    counting = labels if by is None else {label: labels[label] for label in by if label in labels}
    return bounded(f"{start}:{_hash(counting)}" if counting else start)


def window_key(
    incident: str, at_ms: int, window_ms: int, severity: str | None, n: int, resolved: bool
) -> str:
    """Key of an event with a time of its own; `n` resolutions were taken before it in its window."""
    key = f"{incident}:{at_ms // window_ms}"
    if severity:
        key += ":" + _severity(severity)
    if n > 0:
        key += f":{n}"
    return bounded(key + ":resolved" if resolved else key)


def episode_key(incident: str, start_ms: int, resolved: bool) -> str:
    """Key of an event whose episode's start is known."""
    return bounded(f"{incident}:{start_ms}:resolved" if resolved else f"{incident}:{start_ms}")


def repeat_key(incident: str, start_ms: int, n: int) -> str:
    """Key of a firing that its sender repeats, in the `n`th repeat interval of the episode."""
    return bounded(f"{incident}:{start_ms}:r{n}")


def fingerprint(labels: Mapping[str, str]) -> str:
    """Alertmanager's, so that both tools show the same: FNV-1a, 64 bits, over the sorted labels.

    Beyond 8 KiB, where nobody compares and that would take milliseconds, another hash.
    """
    told = b"".join([b"%b\xff%b\xff" % (label.encode(), labels[label].encode()) for label in sorted(labels)])
    if len(told) > 8192:
        return blake2b(told, digest_size=8).hexdigest()
    value = 0xCBF29CE484222325
    for byte in told:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def event_incident(source: str, subject: str) -> str:
    """Incident of a CloudEvent."""
    return bounded(f"ce:{escape(source)}:{escape(subject)}")


def event_key(source: str, event_id: str, resolved: bool) -> str:
    """Key of a CloudEvent: by itself, whatever is known of its incident."""
    key = f"ce:{escape(source)}:{escape(event_id)}"
    return bounded(key + ":resolved" if resolved else key)


def idempotency_key(token: str, value: str, index: int | str | None, rule: str | None, resolved: bool) -> str:
    """Key that the sender chose; `index` in a batch, `rule` for a reading's alert."""
    key = f"id:{escape(token)}:{escape(value)}"
    if index is not None:
        key += f":{index}"
    if rule is not None:
        key += ":" + escape(rule)
    return bounded(key + ":resolved" if resolved else key)


def _hash(labels: Mapping[str, str]) -> str:
    return blake2b(_encode(sorted(labels.items())), digest_size=8).hexdigest()


def _severity(severity: str) -> str:
    if severity == "resolved" or severity.isdecimal():
        return _first_escaped(severity)
    return escape(severity)


def _first_escaped(part: str) -> str:
    return f"~{ord(part[0]):02x}{escape(part[1:])}" if part[0].isascii() else escape(part)

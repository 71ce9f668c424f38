"""W3C Trace Context: which trace an alert belongs to, from a request's headers to those of its deliveries.

Beside the way. Pure; raises nothing: what is invalid counts as absent, as the standard has it. A context is
one text, `traceparent` and, when there is one, a space and `tracestate`: so it stands in an entry's `trace`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence

from multidict import MultiMapping

PARENT, STATE = "traceparent", "tracestate"
LONGEST_STATE = 512  # characters; the standard asks for no more
_MOST_MEMBERS = 32
_KNOWN_FLAGS = 0x03  # sampled, random; others must be zero when they are handed on
_GIVEN = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]{0,400})?")
_KEY = r"[a-z0-9][a-z0-9_*/-]{0,240}(?:@[a-z0-9_*/-]{1,14})?"
_MEMBER = re.compile(rf"{_KEY}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{{0,255}}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")
_CONTEXT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-0[0-3](?: ([\x20-\x7e]{1,512}))?")


def taken(headers: MultiMapping[str]) -> str | None:
    """The context of a request, if it has a valid one."""
    given = headers.getall(PARENT, None)
    return None if given is None else context(given, headers.getall(STATE, ()))


def context(parents: Sequence[str], states: Iterable[str] = ()) -> str | None:
    """What the values of `traceparent` and `tracestate` make; a state that is invalid is left out alone."""
    found = _GIVEN.fullmatch(parents[0].strip(" \t")) if len(parents) == 1 else None
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == "ff" or (version == "00" and more is not None) or _is_zero(trace) or _is_zero(span):
        return None
    state = _state(states)
    parent = f"00-{trace}-{span}-{int(flags, 16) & _KNOWN_FLAGS:02x}"
    return f"{parent} {state}" if state else parent


def stored(field: bytes | None) -> str | None:
    """What stands in an entry, if it is a context: entries may be written by anybody."""
    if field is None:
        return None
    text = field.decode("ascii", "replace")
    found = _CONTEXT.fullmatch(text)
    return text if found and not _is_zero(found[1]) and not _is_zero(found[2]) else None


def child(context: str) -> str:
    """The same trace, flags and state, with a span id of its own: what one attempt sends on."""
    return f"{context[:36]}{random.randrange(1, 2**64):016x}{context[52:]}"  # noqa: S311 - an id, no secret


def trace_id(context: str) -> str:
    """For people and programs that look for it."""
    return context[3:35]


def headers(context: str | None) -> dict[str, str]:
    """What a request with that context carries."""
    if context is None:
        return {}
    parent, _, state = context.partition(" ")
    return {PARENT: parent, STATE: state} if state else {PARENT: parent}


def shared(contexts: Iterable[str | None]) -> str | None:
    """The context of what is sent for several: the first one, when all are of one trace."""
    each = list(contexts)
    first = each[0]
    if first is None or any(other is None or trace_id(other) != trace_id(first) for other in each):
        return None
    return first


def _state(values: Iterable[str]) -> str:
    members = [member for member in (part.strip(" \t") for part in ",".join(values).split(",")) if member]
    names = {member.partition("=")[0] for member in members}
    sound = len(names) == len(members) <= _MOST_MEMBERS and all(map(_MEMBER.fullmatch, members))
    state = ",".join(members)
    return state if sound and len(state) <= LONGEST_STATE else ""


def _is_zero(number: str) -> bool:
    return not number.strip("0")

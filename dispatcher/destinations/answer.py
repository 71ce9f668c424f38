"""What an HTTP answer means: takes status, headers and the body's beginning, returns an Outcome.

Pure. What is retried, what says that the destination is gone, what is refused for good; and the texts for
people, in which no secret is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from common.outcomes import Outcome, OutcomeKind

READ = 4096  # bytes of an answer's body that are read
KEPT = 1024  # bytes of it that are kept, as text

_SECONDS = re.compile(r"-?[0-9]{1,12}(\.[0-9]{0,9})?")
_DELIVERED = {status: Outcome(OutcomeKind.DELIVERED, status) for status in range(200, 300)}


def delivered(status: int) -> Outcome | None:
    """The outcome of a 2xx, whatever the body says; None for everything else."""
    return _DELIVERED.get(status)


def listed(
    retry_on: Iterable[int], gate_on: Iterable[int], reject_on: Iterable[int]
) -> dict[int, OutcomeKind]:
    """The kinds of the statuses that a destination lists, for `refusal`."""
    kinds = dict.fromkeys(retry_on, OutcomeKind.FAILED)
    if 429 in kinds:
        kinds[429] = OutcomeKind.THROTTLED
    return kinds | dict.fromkeys(gate_on, OutcomeKind.GONE) | dict.fromkeys(reject_on, OutcomeKind.REJECTED)


def refusal(
    status: int, kind: OutcomeKind | None, location: str | None, retry_after: float | None, text: str
) -> Outcome:
    """The outcome of an answer that is no 2xx; `kind` is what the lists say of its status, `text` is from
    `excerpt`."""
    if kind is None:
        kind = OutcomeKind.REJECTED if 400 <= status < 500 else OutcomeKind.FAILED
    if status == 503 and retry_after is not None and kind is OutcomeKind.FAILED:
        kind = OutcomeKind.THROTTLED
    said = f"HTTP {status}"
    if 300 <= status < 400 and location is not None:
        said += f", redirect to {_host(location)} not followed"
    if text:
        said += f": {text}"
    return Outcome(kind, status, said, retry_after if kind is OutcomeKind.THROTTLED else None)


def retry_after(values: Iterable[str], now: float) -> float | None:
    """Seconds to wait, 0 or more: the longest of what the headers ask for. None when none can be read.

    Each is a number of seconds or an HTTP date; `now` is in seconds since the epoch.
    """
    waits = [wait for wait in (_wait(value.strip(), now) for value in values) if wait is not None]
    return max(waits, default=None)


def excerpt(body: bytes, secrets: Iterable[str]) -> str:
    """The body's beginning as text for people: up to 1 KiB, secrets masked, control characters escaped."""
    text = body.decode("utf-8", "replace")
    for secret in secrets:
        text = text.replace(secret, "***")
    return short(text.strip())


def short(text: str) -> str:
    """Up to 1 KiB of a text from outside, control characters escaped."""
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:KEPT])
    return plain.encode()[:KEPT].decode(errors="ignore")


def _wait(value: str, now: float) -> float | None:
    if _SECONDS.fullmatch(value):
        return max(0.0, float(value))
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.fromtimestamp(now, UTC)).total_seconds())


def _host(location: str) -> str:
    try:
        return short(urlsplit(location).hostname or "the same host")
    except ValueError:
        return "an unreadable address"

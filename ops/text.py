"""How values look to a person: ages, times, counts, and texts from outside made harmless."""

from __future__ import annotations

from datetime import UTC, datetime


def decoded(raw: bytes) -> str:
    """What Redis has as text; what is no UTF-8 in it is replaced."""
    return raw.decode("utf-8", "replace")


def plain(text: str) -> str:
    """The text with everything that a terminal might obey escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def age(seconds: float | None) -> str:
    """`4s`, `12m`, `3h`, `9d`; `-` for none."""
    if seconds is None:
        return "-"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(max(0, seconds))}s"


def span(seconds: float) -> str:
    """All of it, to three digits of a second: `1h5m`, `27.5s`, `0s`."""
    left = round(seconds, 3)
    parts = []
    for unit, size in (("h", 3600), ("m", 60)):
        if left >= size:
            parts.append(f"{int(left // size)}{unit}")
            left = round(left % size, 3)
    if left or not parts:
        parts.append(f"{left:g}s")
    return "".join(parts)


def moment(ms: int) -> str:
    """RFC 3339, UTC, with milliseconds."""
    try:
        return (
            datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
    except (ValueError, OverflowError, OSError):  # what a foreign hand wrote may be no time at all
        return str(ms)


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 dead letter`, `2 dead letters`."""
    return f"{number} {one if number == 1 else many or one + 's'}"

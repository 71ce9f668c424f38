"""What the fields of an item may be, the same in every format: types with limits, and checks. Pure.

The checks take what a sender told and return it as it is kept; they raise `Fault`, which names the field.
"""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

from msgspec import Meta

from ingest.formats.bodies import Fault
from ingest.when import milliseconds

LONGEST_URL = 2048

Ident: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]
Severity: TypeAlias = Annotated[str, Meta(max_length=64)]
Text: TypeAlias = Annotated[str, Meta(max_length=65_536)]
Time: TypeAlias = int | float | str | None
Url: TypeAlias = Annotated[str, Meta(max_length=LONGEST_URL)]
Labels: TypeAlias = Annotated[
    dict[Annotated[str, Meta(max_length=255)], Annotated[str, Meta(max_length=4096)]], Meta(max_length=64)
]
Annotations: TypeAlias = Annotated[dict[Annotated[str, Meta(max_length=255)], Text], Meta(max_length=64)]


def time(field: str, told: int | float | str, now: int) -> int:
    """Milliseconds since the epoch."""
    try:
        return milliseconds(told, now)
    except ValueError as fault:
        raise Fault(field, str(fault)) from None


def labels(told: dict[str, str]) -> dict[str, str]:
    """Without those that are empty: they say as much as none."""
    for label, value in told.items():
        if not label.isprintable():
            refuse_controls(labels=label)
        if not label or not value:
            return {label: value for label, value in told.items() if label and value}
    return told


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def refuse_controls(**fields: str) -> None:
    """Unprintable letters of other scripts are fine; what ends a line or a C string is not."""
    for field, text in fields.items():
        if _CONTROL.search(text):
            raise Fault(field, "has a control character")


def ident(field: str, text: str, longest: int = 255) -> str:
    """A text that is not empty, of bounded length, on one line."""
    if not text:
        raise Fault(field, "missing")
    if len(text) > longest:
        raise Fault(field, f"longer than {longest} characters")
    if not text.isprintable() and _CONTROL.search(text):
        raise Fault(field, "has a control character")
    return text


def refuse_beyond(value: int | float, field: str) -> None:
    """What does not fit into 64 bits would be another number elsewhere."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise Fault(field, "beyond 64 bits")


def number(field: str, told: str | int | float) -> int | float | None:
    """A number, or a text that is one; None for NaN, which says that there is no value."""
    if isinstance(told, str):
        told = _number(field, told)
    if told != told:
        return None
    if told in (float("inf"), float("-inf")):
        raise Fault(field, "not a finite number")
    refuse_beyond(told, field)
    return told


_WHOLE = re.compile(r"-?[0-9]{1,20}", re.ASCII)


def _number(field: str, told: str) -> int | float:
    text = told.strip()
    if _WHOLE.fullmatch(text):
        return int(text)
    try:
        if len(text) > 64 or "_" in text or not text.isascii():
            raise ValueError
        return float(text)
    except ValueError:
        raise Fault(field, f"expected a number, got {told[:40]!r}") from None

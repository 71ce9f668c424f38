"""Tries a template out on alerts that may come, before one does: what `faults` of a kind say of it.

Takes the text; returns what is wrong with it, or None. Pure. An alert may have nothing but what is required,
and its texts may hold anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from common.alert import Alert, Status
from dispatcher.destinations.base import Delivery, Unrenderable
from dispatcher.destinations.template import LONGEST, Template, names_of

_AT = 1_764_438_120_042  # ms: 2025-11-29T17:42:00.042Z
_HOSTILE = '"quoted" \\ back\\slash\r\n\t<b>{{ host }}</b> \u2028\u00fc\U0001f525 '
_decode = msgspec.json.Decoder().decode


def fault(
    text: str,
    *,
    batches: bool = False,
    most: int = LONGEST,
    look: Callable[[str], str | None] = lambda rendered: None,
) -> str | None:
    """What is wrong with a template; `look` says what is wrong with what it makes, of at most so many
    characters. `batches`: it has to do for several alerts at once, too."""
    try:
        template = Template(text)
    except ValueError as said:
        return str(said)
    for what, deliveries in _trials(batches):
        try:
            wrong = look(template.render(names_of(deliveries), most))
        except Unrenderable as said:
            wrong = str(said)
        if wrong is not None:
            return f"{wrong} (with {what})"
    return None


def json_fault(rendered: str) -> str | None:
    """What is wrong with a body that says that it is JSON."""
    try:
        _decode(rendered)
    except (msgspec.DecodeError, RecursionError) as said:
        return f"makes no JSON: {said}; texts go in as {{{{ summary | tojson }}}}, without quotes around"
    return None


def text_fault(rendered: str) -> str | None:
    """What is wrong with a text that people are to read."""
    return None if rendered.strip() else "makes no text"


def samples() -> dict[str, Delivery]:
    """An alert of each sort, by what it is."""
    full = Alert(
        incident="db-1:disk-full",
        host="db-1",
        name="disk-full",
        severity="critical",
        summary="disk at 100%",
        value=100,
        labels={"team": "storage", "mount": "/var"},
        annotations={"runbook": "https://wiki.example/disk"},
        url="https://grafana.example/d/1",
        timestamp=_AT,
        starts_at=_AT - 60_000,
    )
    least = Alert(incident="db-1:disk-full", host="db-1", name="disk-full", timestamp=_AT)
    over = msgspec.structs.replace
    odd = over(full, host='"db"\\1', name="'disk' {{ full", severity='"\\', summary=_HOSTILE * 500)
    odd = over(odd, labels={"team": '"', "items": "\\"}, annotations={_HOSTILE: _HOSTILE}, value=-0.5)
    return {
        "an alert that has everything": _delivery(full),
        "an alert that has only what is required": _delivery(least),
        "a resolution that has everything": _delivery(over(full, status=Status.RESOLVED, ends_at=_AT)),
        "a resolution that has only what is required": _delivery(over(least, status=Status.RESOLVED)),
        "an alert with quotes, line breaks and long texts": _delivery(odd),
    }


def _delivery(alert: Alert) -> Delivery:
    key = f"{alert.incident}:1"
    return Delivery(entry_id="1-1", deliveries=1, key=key, alert=alert, attempt=1, first_at=alert.timestamp)


def _trials(batches: bool) -> Iterator[tuple[str, Sequence[Delivery]]]:
    alone = samples()
    yield from ((what, [delivery]) for what, delivery in alone.items())
    if batches:
        yield f"a batch of {len(alone)}, which has alerts and count", list(alone.values())

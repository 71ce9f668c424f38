"""Dead letters as a person reads them. Takes Letters; nothing in them can forge a line or move a cursor."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ops.letters import Letter, summary
from ops.tables import Fitting
from ops.text import age, plain

READABLE = 66  # columns; with fewer the cells are folded too often
LONGEST = 10_000  # characters of an alert that is no JSON


def table(letters: Sequence[Letter]) -> RenderableType:
    """A row each, within the terminal's width."""
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    made.add_column("id", no_wrap=True)
    made.add_column("died", justify="right", no_wrap=True)
    for heading in ("destination", "reason", "key"):
        made.add_column(heading, overflow="fold")
    now = time.time()
    rows = [_cells(letter, now) for letter in letters]
    for row in rows:
        made.add_row(*row)
    return Fitting(made, READABLE, [Text(" ").join(row) for row in rows])


def _cells(letter: Letter, now: float) -> list[Text]:
    reason = " ".join(filter(None, (letter.text("reason"), letter.text("status"))))
    cells = (letter.id, age(now - letter.died_at / 1000), letter.destination, reason, letter.text("key"))
    return [Text(plain(cell)) for cell in cells]


def as_text(letter: Letter) -> str:
    """All that is known of one, a line per field and the alert below."""
    told = summary(letter) | {"object_error": letter.fault}
    lines = [f"{name:<12} {plain(str(value))}" for name, value in told.items() if value not in (None, "")]
    return "\n".join([*lines, *(f"    {plain(line)}" for line in _alert(letter).split("\n"))])


def _alert(letter: Letter) -> str:
    stored = letter.fields.get(b"alert", b"")
    try:
        msgspec.json.decode(stored)  # format alone believes everything
        return msgspec.json.format(stored).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return stored[:LONGEST].decode("utf-8", "replace")

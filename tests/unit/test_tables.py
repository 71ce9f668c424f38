"""Status and ledger at any width: nothing is wider than the terminal, and no number is cut off."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from common.snapshot import Ledger, Snapshot
from ops import tables
from ops.tables import Seen

LARGE = 123_456_789
BOOK = Ledger(accepted=LARGE, replayed=1, delivered=LARGE, duplicate=2, superseded=3, died=4, lost=5)


def seen(name: str = "pager", *, rate: float | None = 12.25, book: Ledger = BOOK, **gate: str) -> Seen:
    one = Snapshot(
        destination=name,
        now=1_764_438_120_042,
        waiting=7,
        retrying=8,
        dead_letters=LARGE,
        in_flight=9,
        consumers=2,
        groups=1,
        oldest_at=1_764_438_000_000,
        next_due=None,
        gate=gate,
        ledger=book,
    )
    return Seen(one, removed=False, rate=rate)


def shown(width: int, *some: Seen) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(tables.status(some, "redis://127.0.0.1, namespace redispatch"))
    return out.getvalue()


@pytest.mark.parametrize("width", [20, 40, 60, 72, 76, 80, 100, 160])
def test_every_number_is_whole(width: int) -> None:
    text = shown(width, seen(), seen("a" * 63, rate=None), seen("chat", state="paused", reason="moving " * 9))
    assert [line for line in text.split("\n") if len(line) > width] == []
    assert "\u2026" not in text
    numbers = re.findall(r"\d+", text)
    assert numbers.count(str(LARGE)) >= 9  # dead letters, accepted and delivered of three
    assert "12.2" in text
    assert "chat is paused (moving" in " ".join(text.split())


def test_a_table_where_it_fits_and_lines_where_not() -> None:
    few = seen(book=Ledger(accepted=1, delivered=1))
    assert "destination" in shown(80, few).split("\n")[3]
    assert "pager: depth 15, in flight 9, retrying 8, dead letters" in shown(60, few)
    assert "unaccounted" in shown(60, few)

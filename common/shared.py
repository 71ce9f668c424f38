"""Numbers of several processes in memory that they share, for metrics that are sums over all of them.

Made before the processes are: a row for each of them, anonymous, gone with the last of them. A process writes
its own row and reads all; whoever takes a dead one's place goes on in its row, so that no sum ever falls. A
number is 8 aligned bytes, written and read at once: nobody takes a lock, and nobody sees a half.
"""

from __future__ import annotations

import mmap
from collections.abc import MutableSequence, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

WIDTH = 8192  # numbers in a row; memory that is not touched costs nothing

Numbers: TypeAlias = MutableSequence[float]  # or a memoryview of doubles, whose annotations know integers


class Cells(Struct, frozen=True):
    """Some numbers of a row, to write, and the same of every row, to read."""

    own: Numbers
    all: Sequence[Numbers]

    def sums(self) -> list[float]:
        """Over all rows."""
        return [sum(column) for column in zip(*self.all, strict=True)]


class Row:
    """One process's numbers, handed out from left to right: in each process in the same order."""

    def __init__(self, rows: Sequence[Any], own: int) -> None:
        self._rows = rows
        self._own = own
        self._used = 0

    def take(self, count: int) -> Cells:
        """The next `count` numbers."""
        start, self._used = self._used, self._used + count
        if self._used > WIDTH:
            raise ValueError(f"a row has no more than {WIDTH} numbers")
        parts = [row[start : self._used] for row in self._rows]
        return Cells(parts[self._own], parts)


class Table:
    """Rows of numbers, all 0."""

    def __init__(self, rows: int = 1) -> None:
        numbers = memoryview(mmap.mmap(-1, rows * WIDTH * 8)).cast("d")
        self._rows = [numbers[n * WIDTH : (n + 1) * WIDTH] for n in range(rows)]

    def row(self, n: int = 0) -> Row:
        """The row of process `n`."""
        return Row(self._rows, n)


def alone(count: int) -> Cells:
    """Numbers of a process that shares none."""
    own = [0.0] * count
    return Cells(own, (own,))

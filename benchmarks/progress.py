"""How far a run is: a bar on a terminal, else a plain line now and then."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

QUIET = 5.0  # seconds between two plain lines


class Progress:
    """`with Progress(console, total) as progress: progress.show(done, "depth 3")`."""

    def __init__(self, console: Console, total: int, unit: str) -> None:
        self._console = console
        self._total = total
        self._unit = unit
        self._told_at = 0.0
        self._bar = Bar(
            TextColumn(unit),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, done: int, text: str) -> None:
        """So many are done; `text` says what else there is to say."""
        self._bar.update(self._task, completed=done, description=text)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._told_at >= QUIET:
            self._told_at = now
            self._console.print(f"{self._unit} {done} of {self._total}, {text}", markup=False, soft_wrap=True)

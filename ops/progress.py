"""A progress bar where somebody can see it; Ctrl-C ends the work between two batches."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress(verb: str, total: int, stop: asyncio.Event) -> Iterator[Callable[[int], None]]:
    """A function to be told of each batch's size; `stop` is set by SIGINT."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    with _bar() as bar:
        task = bar.add_task(verb, total=total)
        yield lambda moved: bar.update(task, advance=moved)


@contextmanager
def looking(total: int, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """A function to be told how many more were looked at; the bar is gone when it is over.

    `total` is how many there are, of which a filter may leave out many.
    """
    with _bar(transient=True, quiet=quiet) as bar:
        task = bar.add_task("looking", total=total)
        yield lambda seen: bar.update(task, advance=seen)


def _bar(transient: bool = False, quiet: bool = False) -> Progress:
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=transient)

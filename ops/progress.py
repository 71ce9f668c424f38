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
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(verb, total=total)
        yield lambda moved: bar.update(task, advance=moved)

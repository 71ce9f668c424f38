"""`python -m benchmarks.replay`: a hundred thousand dead letters and the command that an operator runs.

1. `dead list` with a key that nobody has: all are looked at.
2. `dead replay` at a pace, interrupted, then run again for the rest at full speed.

Prints time, the command's largest memory and the server's longest command for each, and whether every letter
was moved once; exits with 1 when one was lost or doubled. Not a part of `make bench`, which it would hold up.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click
from msgspec import Struct
from redis.asyncio import Redis
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.fill import NAMESPACE, fill
from benchmarks.stack import Process, Stack
from common import keys
from common.settings import Queue
from common.snapshot import snapshot

LOOK = 0.02  # seconds
AT = keys.Destination(NAMESPACE, "sink")


class Measured(Struct, frozen=True):
    """One run of the command: seconds, MiB at most, the server's longest command in ms, exit code."""

    what: str
    seconds: float
    memory: float
    longest: float
    code: int


async def measured(stack: Stack, redis: Any, what: str, *words: str, stop_below: int = -1) -> Measured:
    """Run it; SIGINT when there are no more than `stop_below` dead letters left."""
    await redis.config_set("slowlog-log-slower-than", 500)
    await redis.execute_command("SLOWLOG", "RESET")
    began, memory = time.monotonic(), 0
    process = await stack.module("ops", stack.directory / "redispatch.yaml", "dead", *words, name=words[0])
    stack.started.remove(process)  # it is to end
    while process.code is None:
        memory = max(memory, _peak(process))
        if await redis.xlen(AT.dead) <= stop_below:
            os.kill(process.pid, signal.SIGINT)
            stop_below = -1
        await asyncio.sleep(LOOK)
    seconds = time.monotonic() - began
    slow = await redis.execute_command("SLOWLOG", "GET", 1000)
    longest = max((one[2] for one in slow), default=0)
    return Measured(what, seconds, memory / 1024, longest / 1000, process.code)


def _peak(process: Process) -> int:
    """KiB at most so far; 0 when it has just ended."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text("ascii")
    except OSError:  # it has just ended
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)


async def run(letters: int) -> tuple[list[Measured], str]:
    """The figures, and what is wrong, "" for nothing."""
    with tempfile.TemporaryDirectory() as directory:
        async with Stack(Path(directory)) as stack:
            server = await stack.server()
            queue = {"max_depth": 2 * letters + 2, "max_dead": 2 * letters}
            destination = {"name": "sink", "type": "discard"}
            redis = {"url": server.url, "namespace": NAMESPACE}
            stack.config({"redis": redis, "queue": queue, "destinations": [destination]})
            client = server.client()
            try:
                return await _measure(stack, server, client, letters)
            finally:
                await client.aclose()


async def _measure(stack: Stack, server: Any, client: Redis, letters: int) -> tuple[list[Measured], str]:
    with Progress(console=Console(stderr=True)) as progress:
        full = Queue(max_depth=1, max_dead=2 * letters)  # so that all but one die at once, as `queue_full`
        await fill(client, server, progress, letters + 1, full)
    before = {entry_id async for entry_id, _ in _entries(client, AT.dead)}
    done = [
        await measured(stack, client, "list with a key", "list", "--key", "nobody:*"),
        await measured(
            stack, client, "replay, interrupted", "replay", "--rate", "5000", stop_below=letters * 4 // 5
        ),
        await measured(stack, client, "replay, the rest", "replay"),
    ]
    return done, await _wrong(client, before)


async def _entries(client: Any, stream: str) -> AsyncIterator[tuple[bytes, dict[bytes, bytes]]]:
    start = "-"
    while page := await client.xrange(stream, start, "+", 10_000):
        for entry in page:
            yield entry
        start = f"({page[-1][0].decode()}"


async def _wrong(client: Any, before: set[bytes]) -> str:
    moved = [
        fields[b"replay_of"] async for _, fields in _entries(client, AT.stream) if b"replay_of" in fields
    ]
    seen = await snapshot(client, NAMESPACE, "sink")
    if set(moved) != before or len(moved) != len(before):
        return f"{len(moved)} moved, {len(set(moved))} of them different, of {len(before)}"
    return f"unaccounted: {seen.unaccounted}" if seen.unaccounted or seen.dead_letters else ""


@click.command()
@click.option("--letters", type=click.IntRange(1000), default=100_000, show_default=True)
def main(letters: int) -> None:
    """Measure, print, judge."""
    done, wrong = asyncio.run(run(letters))
    table = Table(f"{letters:,} dead letters", "seconds", "MiB", "longest command", "exit code")
    for one in done:
        figures = (f"{one.seconds:.1f}", f"{one.memory:.0f}", f"{one.longest:.1f} ms", str(one.code))
        table.add_row(one.what, *figures)
    Console().print(table)
    click.echo(wrong or "each was moved once, the ledger balances")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

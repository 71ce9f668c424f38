"""`make chaos`: alerts through dispatchers that die, a server that dies and a receiver that fails.

One Valkey with every write synced, two ingest, three dispatchers. Every second one dispatcher is killed and
started again, halfway the server is. Prints a table; the exit code is 1, with the reasons, when an
acknowledged alert did not arrive, the ledger is not exact or a duplicate has no explanation.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import uvloop
from redis.exceptions import RedisError
from rich.console import Console

from benchmarks import verdict
from benchmarks.flaky import Flaky
from benchmarks.poster import Poster
from benchmarks.progress import Progress
from benchmarks.proof import Result, faults, table
from benchmarks.scene import TIMEOUT, Scene
from benchmarks.stack import Broken, Stack
from benchmarks.verdict import Answer
from ops import embedded

RATE, SHORTEST = 200, 20.0  # alerts per second, and seconds that posting takes at least
INTERRUPTED = 130
WIDTH = 120  # characters of a line that goes to no terminal


async def run(alerts: int, seed: int, directory: Path, console: Console) -> Result:
    """Start everything, do it, end everything."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _interrupt(asyncio.current_task()))
    began = time.monotonic()
    async with Flaky(seed, TIMEOUT) as receiver, Stack(directory) as stack:
        with Progress(console, alerts, "delivered") as progress:
            server = await stack.server("--appendfsync", "always")
            scene = Scene(stack, server, receiver, seed, progress)
            poster = Poster(await scene.start(), alerts, max(SHORTEST, alerts / RATE), seed)
            await scene.storm(poster, alerts)
            await scene.drain(len(poster.acknowledged))
            await scene.stop()
    result = _result(alerts, scene, poster, time.monotonic() - began)
    _keep(directory, receiver.answers, result, scene.killed)
    return result


def _interrupt(task: asyncio.Task[None] | None) -> Callable[[], None]:
    def interrupt() -> None:
        if task is not None:
            task.cancel()

    return interrupt


def _keep(directory: Path, answers: Sequence[Answer], result: Result, killed: Mapping[str, float]) -> None:
    """All requests and duplicates, for whoever looks into a failure."""
    found = [(why, first, second, killed.get(first.worker)) for first, second, why in result.duplicates]
    for name, lines in (("requests", answers), ("duplicates", found)):
        text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        (directory / f"{name}.jsonl").write_bytes(text)


def _result(alerts: int, scene: Scene, poster: Poster, seconds: float) -> Result:
    answers = scene.receiver.answers
    events = verdict.Events(
        timeout=TIMEOUT,
        killed=scene.killed,
        outages=scene.outages,
        unanswered=frozenset(scene.unanswered()),
    )
    return Result(
        alerts=alerts,
        acknowledged=len(poster.acknowledged),
        repeats=poster.repeats,
        met=poster.met,
        requests=len(answers),
        delivered=len(scene.receiver.delivered),
        lost=verdict.lost(poster.acknowledged, answers),
        dead=scene.dead,
        duplicates=verdict.duplicates(answers, events),
        kills=len(scene.killed),
        restarts=len(scene.outages),
        looks=scene.looks,
        ledgers=scene.ledgers,
        wrong=poster.wrong + scene.wrong,
        seconds=seconds,
    )


def prove(alerts: int, seed: int, directory: Path, console: Console) -> int:
    """Run it, print what came of it, and return the exit code."""
    console.print(
        f"chaos: {alerts} alerts, seed {seed}; takes about {max(SHORTEST, alerts / RATE) + 10:.0f} s"
    )
    try:
        result = uvloop.run(run(alerts, seed, directory, console))
    except (Broken, embedded.Missing, RedisError, OSError) as fault:
        console.print(f"chaos: {fault}", style="red", markup=False)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("chaos: interrupted")
        return INTERRUPTED
    console.print(table(result))
    off = faults(result)
    for text in off:
        console.print(f"chaos: {text}", style="red", markup=False)
    if not off:
        console.print("chaos: nothing lost, the ledger exact, every duplicate explained", style="green")
    return 1 if off else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__.split("\n\n")[0])
    parser.add_argument("--alerts", type=int, default=10_000, help="how many are posted (10000)")
    parser.add_argument("--seed", type=int, default=1, help="of everything that is left to chance here (1)")
    parser.add_argument("--keep", action="store_true", help="keep logs and data, also when all is well")
    told = parser.parse_args(arguments)
    if told.alerts < 1:
        parser.error("--alerts must be 1 or more")
    directory = Path(tempfile.mkdtemp(prefix="redispatch-chaos-"))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    code = 1
    try:
        code = prove(told.alerts, told.seed, directory, console)
    finally:
        if told.keep or code == 1:
            console.print(f"chaos: logs, data and requests are in {directory}", soft_wrap=True)
        else:
            shutil.rmtree(directory)
    return code


if __name__ == "__main__":
    sys.exit(main())

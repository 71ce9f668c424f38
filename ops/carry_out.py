"""Replay and discard as an operator sees them: how many, whether they are sure, progress, what came of it.

Takes a Job and the coroutine function that moves; ends the command with its exit code.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import click
from msgspec import Struct, structs
from redis.asyncio import Redis

from common.objects import Objects
from common.settings import Settings
from ops import ask, letters, options, reach
from ops.filters import Chosen
from ops.letters import Wanted
from ops.move import Moved, Run
from ops.progress import looking, progress
from ops.text import count

Mover: TypeAlias = Callable[[Run, Sequence[str]], Awaitable[list[Moved]]]


class Job(Struct, frozen=True):
    """`verb` is replay or discard, `done` its participle."""

    settings: Settings
    chosen: Chosen
    verb: str
    done: str
    dry_run: bool
    as_json: bool


class Plan(Struct, frozen=True):
    """What was found: how many of which destination."""

    wanted: Wanted
    matched: dict[str, int]

    @property
    def total(self) -> int:
        """Of all destinations."""
        return sum(self.matched.values())


def carry_out(job: Job, mover: Mover, *, asks: bool = False) -> None:
    """Count, ask, move, report."""
    plan = reach.run(job.settings, lambda redis: _planned(redis, job))
    if job.dry_run or not plan.total:
        _report(job, plan, [Moved(name) for name in plan.matched], interrupted=False)
        return
    ask.sure(f"{job.verb.capitalize()} {_each(plan.total, plan.matched)}?", yes=not asks)
    stop = asyncio.Event()
    moved = reach.run(job.settings, lambda redis: _moved(redis, job, plan, mover, stop))
    _report(job, plan, moved, interrupted=stop.is_set())
    if stop.is_set():
        sys.exit(options.INTERRUPTED)
    sys.exit(1 if any(one.full for one in moved) else 0)


async def _planned(redis: Redis, job: Job) -> Plan:
    names = await reach.choose(redis, job.settings, job.chosen.destinations)
    if job.verb == "replay":
        names = _read_by_somebody(names, asked=bool(job.chosen.destinations))
    now = await reach.now(redis)
    wanted = job.chosen.wanted(now)
    namespace = job.settings.redis.namespace
    with looking(await letters.length(redis, namespace, list(names))) as told:
        matched = await letters.count(redis, namespace, list(names), wanted, told)
    if job.verb == "discard" and wanted.until is None:
        wanted = structs.replace(wanted, until=now)  # not what dies between the question and its answer
    return Plan(wanted, matched)


def _read_by_somebody(names: dict[str, bool], asked: bool) -> dict[str, bool]:
    """Without the destinations that left the configuration: what is put there, nobody delivers."""
    left = ", ".join(name for name, removed in names.items() if removed)
    if left and asked:
        raise click.ClickException(
            f"{left} is not in the configuration: nobody would deliver what is replayed"
        )
    if left:
        click.echo(f"left out, since not in the configuration: {left}", err=True)
    return {name: removed for name, removed in names.items() if not removed}


async def _moved(redis: Redis, job: Job, plan: Plan, mover: Mover, stop: asyncio.Event) -> list[Moved]:
    with progress(job.verb, plan.total, stop) as told:
        namespace = job.settings.redis.namespace
        objects = Objects(job.settings.objects.url, namespace)
        run = Run(redis, namespace, objects, plan.wanted, lambda done, gone: told(done + gone), stop)
        return await mover(run, [name for name, matched in plan.matched.items() if matched])


def _report(job: Job, plan: Plan, moved: Sequence[Moved], *, interrupted: bool) -> None:
    if job.as_json:
        options.print_json(_document(job, plan, moved, interrupted))
    elif not plan.total:
        click.echo("no dead letter matches")
    elif job.dry_run:
        click.echo(f"would {job.verb} {_each(plan.total, plan.matched)}")
    else:
        done = {one.name: one.done for one in moved if one.done}
        click.echo(f"{job.done} {_each(sum(done.values()), done)}")
        _remarks(job, plan, moved, interrupted)


def _remarks(job: Job, plan: Plan, moved: Sequence[Moved], interrupted: bool) -> None:
    gone = sum(one.gone for one in moved)
    if gone:
        click.echo(f"{count(gone, 'other was', 'others were')} moved by somebody else meanwhile")
    left = sum(one.left for one in moved)
    if left:
        told = count(left, "object", "objects")
        click.echo(f"{told} could not be removed now; a dispatcher does that within two hours", err=True)
    for one in moved:
        if one.full:
            cap = job.settings.queue.max_depth
            click.echo(
                f"{one.name}: stopped, its queue is full ({cap}); run it again when it has drained", err=True
            )
    if interrupted:
        done = sum(one.done + one.gone for one in moved)
        click.echo(f"interrupted after {done} of {plan.total}; run it again for the rest", err=True)


def _document(job: Job, plan: Plan, moved: Sequence[Moved], interrupted: bool) -> dict[str, Any]:
    return {
        "dry_run": job.dry_run,
        "interrupted": interrupted,
        "matched": plan.total,
        job.done: sum(one.done for one in moved),
        "destinations": [
            {
                "name": one.name,
                "matched": plan.matched[one.name],
                job.done: one.done,
                "gone": one.gone,
                "full": one.full,
            }
            for one in moved
        ],
    }


def _each(total: int, counts: dict[str, int]) -> str:
    listed = ", ".join(f"{name} {number}" for name, number in counts.items() if number)
    return count(total, "dead letter") + (f" ({listed})" if listed else "")

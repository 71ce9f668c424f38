"""What the console does: a function per form. Each returns where the browser goes next, and leaves a note.

Dead letters are moved by `ops/move.py`, gates by `ops/gate.py`, test alerts by `common/append.py`, as
commands and services do. Each action is one line of the log, with who did it. Raises Problem, and what
redis-py raises.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias
from urllib.parse import parse_qsl, quote, urlencode

import click
from aiohttp import web

from common.alert import Alert, Status
from common.append import DEAD, NO_ROOM, Store
from common.bounded import bounded as short
from common.http import Problem
from common.log import Log
from common.stored import Away
from ingest.identity import incident, window_key
from ingest.route import Router
from ops import gate, move, reach
from ops.console import letter as letters
from ops.console.desk import Desk, Visit
from ops.console.form import one
from ops.console.jobs import DONE, Task, bounded
from ops.console.pages import SEVERITIES, show
from ops.console.search import Search, search
from ops.letters import Wanted
from ops.text import count

Next: TypeAlias = str | web.Response
LONGEST = 255  # characters of host and name
FASTEST = 100_000.0  # a second

log = Log("console")


async def picked(desk: Desk, visit: Visit) -> Next:
    """Replay or discard the letters that were chosen, at once."""
    verb, sure = one(visit.fields, "do"), one(visit.fields, "sure") == "yes"
    try:
        chosen = letters.picked(visit.fields.get("letter", []))
    except ValueError:
        raise Problem(400, "letter: this is no dead letter") from None
    back = _back(visit)
    if verb not in ("replay", "discard"):
        raise Problem(400, "do: expected replay or discard")
    if not chosen:
        return _noted(desk, back, "No dead letter was chosen: tick some first.")
    if verb == "discard" and not sure:
        number = sum(map(len, chosen.values()))
        return show(
            desk, visit, "sure.html", "Discard?", picked=visit.fields["letter"], number=number, back=back
        )
    if verb == "replay":
        await _only_read(desk, list(chosen))
    moved = []
    async for each in _moved(desk, chosen, verb, one(visit.fields, "force") == "yes"):
        moved.append(each)
        _audit(desk, visit, verb, each.name, each.done, ids=" ".join(chosen[each.name]))
    return _noted(desk, back, _came_of(verb, moved, sum(map(len, chosen.values()))))


async def matching(desk: Desk, visit: Visit) -> Next:
    """Replay or discard all that match, as a job, when somebody is sure."""
    verb = one(visit.fields, "do")
    if verb not in ("replay", "discard"):
        raise Problem(400, "do: expected replay or discard")
    now = await reach.now(desk.redis)
    wanted = bounded(search(visit.fields, now), now)
    known = await reach.names(desk.redis, desk.settings)
    names = [wanted.destination] if wanted.destination else list(known)
    if wanted.destination and wanted.destination not in known:
        raise Problem(404, f"there is no destination {wanted.destination!r}")
    if verb == "replay":
        await _only_read(desk, names if wanted.destination else [])
        names = [name for name in names if not known[name]]
    total = sum(one.snapshot.dead_letters for one in desk.watch.seen if one.snapshot.destination in names)
    if one(visit.fields, "sure") != "yes":
        return show(
            desk,
            visit,
            "all.html",
            f"{verb.capitalize()} all?",
            verb=verb,
            search=wanted,
            total=total,
            until=now,
        )
    until = one(visit.fields, "seen_at")
    if until.isdecimal() and len(until) <= 15:  # not what has died while somebody was reading the question
        wanted = bounded(wanted, int(until))
    task = Task(
        verb=verb,
        names=tuple(names),
        who=visit.guest.name,
        search=wanted,
        rate=_rate(one(visit.fields, "rate")),
        force=one(visit.fields, "force") == "yes",
        total=total if wanted.since is None else None,
    )
    job = desk.jobs.start(task, desk.settings)
    pace = "as fast as it goes" if task.rate is None else f"{task.rate:g}/s"
    _audit(desk, visit, verb, " ".join(names), total, job=job.id, filters=urlencode(wanted.fields), rate=pace)
    return f"/jobs#job-{job.id}"


async def stop(desk: Desk, visit: Visit) -> Next:
    """Stop a job after the batch that is under way."""
    job = desk.jobs.of(one(visit.fields, "job"))
    if job is None:
        raise Problem(404, "there is no such job any more")
    job.stop.set()
    _audit(desk, visit, "stop", " ".join(job.task.names), job.done, job=job.id)
    return f"/jobs#job-{job.id}"


async def pause(desk: Desk, visit: Visit) -> Next:
    """Close a gate."""
    name, reason = one(visit.fields, "destination"), one(visit.fields, "reason")
    with _as_problem():
        before, _, depth, _ = await gate.close(desk.redis, desk.settings, name, reason)
    _audit(desk, visit, "pause", name, depth, reason=reason, before=before or "open")
    told = "stays gone" if before == "gone" else "is paused"
    waits = count(depth, "delivery waits", "deliveries wait")
    return _noted(desk, _back(visit), f"{name} {told}: {waits}, and max_age still counts.")


async def resume(desk: Desk, visit: Visit) -> Next:
    """Open a gate."""
    name = one(visit.fields, "destination")
    with _as_problem():
        before, _, _, depth = await gate.open_again(desk.redis, desk.settings, name)
    _audit(desk, visit, "resume", name, depth, before=before or "open")
    told = f"is open again (it was {before})" if before else "was open"
    waits = count(depth, "delivery waits", "deliveries wait")
    return _noted(desk, _back(visit), f"{name} {told}: {waits}.")


async def retire(desk: Desk, visit: Visit) -> Next:
    """Move what a removed destination has to its dead letters, as a job."""
    name = one(visit.fields, "destination")
    with _as_problem():
        known = await reach.choose(desk.redis, desk.settings, [name])
    if not known[name]:
        raise Problem(409, f"{name} is in the configuration: take it out of the file first")
    task = Task("retire", (name,), visit.guest.name, Search(destination=name))
    job = desk.jobs.start(task, desk.settings)
    _audit(desk, visit, "retire", name, None, job=job.id)
    return f"/jobs#job-{job.id}"


async def send(desk: Desk, visit: Visit) -> Next:
    """A test alert, by the routes or to one destination; another one each time."""
    alert = await _alert(desk, visit)
    chosen = one(visit.fields, "destination")
    names = (chosen,) if chosen else Router(desk.settings).destinations(alert)
    configured = {destination.name for destination in desk.settings.destinations}
    if chosen and chosen not in configured:
        raise Problem(404, f"there is no destination {chosen!r} in the configuration")
    if not names:
        raise Problem(409, "no route leads anywhere for this alert: choose a destination")
    store = Store(desk.wire, desk.settings, cluster=True)
    try:
        (codes,) = await store.append([alert], {name: [0] for name in names})
    except Away as fault:
        raise Problem(503, f"the object store is away: {fault}") from fault
    _audit(desk, visit, "send", " ".join(names), 1, key=alert.key)
    full = [name for name, code in codes.items() if code in (DEAD, NO_ROOM)]
    told = f"Sent to {', '.join(names)}."
    if full:
        told += f" {', '.join(full)} had no room: it is a dead letter there, or was refused."
    return _noted(desk, f"/way?key={quote(alert.key)}", told)


async def _alert(desk: Desk, visit: Visit) -> Alert:
    host, name = one(visit.fields, "host"), one(visit.fields, "name")
    severity, status = one(visit.fields, "severity"), one(visit.fields, "status") or "firing"
    for what, text in (("host", host), ("name", name)):
        if not text or len(text) > LONGEST:
            raise Problem(400, f"{what}: expected 1 to {LONGEST} characters")
    if severity and severity not in SEVERITIES:
        raise Problem(400, f"severity: expected one of {', '.join(SEVERITIES)}")
    if status not in set(Status):
        raise Problem(400, "status: expected firing or resolved")
    now, wrong = await reach.now(desk.redis), incident(host, name, {})
    resolved = status == Status.RESOLVED
    return Alert(
        key=short(window_key(wrong, now, 1, severity or None, 0, resolved)),
        incident=wrong,
        host=host,
        name=name,
        status=Status(status),
        severity=severity or None,
        summary=one(visit.fields, "summary") or f"A test, sent by {visit.guest.name} from the console",
        timestamp=now,
    )


async def _moved(
    desk: Desk, chosen: dict[str, tuple[str, ...]], verb: str, force: bool
) -> AsyncIterator[move.Moved]:
    stop = asyncio.Event()
    for name, ids in chosen.items():
        run = move.Run(
            desk.redis, desk.namespace, desk.objects, Wanted(ids=ids), lambda done, gone: None, stop
        )
        if verb == "replay":
            cap = desk.settings.queue.max_depth
            (moved,) = await move.replay(run, [name], cap, move.Pace(None), force)
        else:
            (moved,) = await move.discard(run, [name])
        yield moved


def _came_of(verb: str, moved: Sequence[move.Moved], chosen: int) -> str:
    done = sum(one.done for one in moved)
    told = f"{count(done, 'dead letter')} {DONE[verb]}."
    full = [one.name for one in moved if one.full]
    if full:
        told += f" The queue of {', '.join(full)} is full: replay the rest when it has drained."
    elif done < chosen:
        told += f" {count(chosen - done, 'other was', 'others were')} gone already."
    return told


async def _only_read(desk: Desk, names: Sequence[str]) -> None:
    """What is replayed to one that left the configuration, nobody delivers. Raises Problem (409)."""
    known = await reach.names(desk.redis, desk.settings)
    left = [name for name in names if known.get(name, True)]
    if left:
        raise Problem(
            409, f"{', '.join(left)} is not in the configuration: nobody would deliver what is replayed"
        )


def _rate(text: str) -> float | None:
    """Per second; None for as fast as it goes. Raises Problem (400)."""
    if not text:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= FASTEST:
        raise Problem(400, f"rate: expected a number per second, above 0 and up to {FASTEST:g}")
    return rate


def _back(visit: Visit) -> str:
    """The page that the form was on, if it is one of ours."""
    told = one(visit.fields, "back")
    return told if re.fullmatch(r"/(?![/\\\\])[!-~]*", told) else "/"


def _noted(desk: Desk, address: str, text: str) -> str:
    """The address of a page that shows the text."""
    path, _, query = address.partition("?")
    kept = [pair for pair in parse_qsl(query) if pair[0] != "note"]
    return f"{path}?{urlencode([*kept, ('note', desk.notes.leave(text))])}"


def _audit(
    desk: Desk, visit: Visit, action: str, destination: str, count: int | None, **what: object
) -> None:
    """Who did what, to how many dead letters or deliveries. A warning, so that few settings leave it out."""
    desk.metrics.actions[action].inc()
    told = " ".join(f"{name}={value}" for name, value in what.items() if value != "")
    log.warning(
        "console_action",
        user=visit.guest.name,
        action=action,
        destination=destination,
        count=count,
        what=told,
    )


@contextmanager
def _as_problem() -> Iterator[None]:
    """What is a command's error is a refusal here."""
    try:
        yield
    except click.ClickException as fault:
        raise Problem(404, fault.message) from fault

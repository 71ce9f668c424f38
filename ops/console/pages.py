"""What the console shows: a function per page, from a Visit to HTML. Reads only.

Raises Problem for what isn't there or makes no sense, and what redis-py raises.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from common import connect
from common.http import Problem
from common.outcomes import Reason
from ops import reach, tables
from ops.console import letter as letters
from ops.console.desk import Desk, Visit
from ops.console.form import one
from ops.console.render import SHOWN, page
from ops.console.search import LOOKS, Search, look, place, search
from ops.console.track import HEIGHT, WIDTH
from ops.console.work import MOST, Tried, in_work
from ops.fetch import filled
from ops.filters import ID
from ops.letters import Letter, Wanted
from ops.letters import pages as read
from ops.tables import Seen

ROWS = 100  # of deliveries that are being tried, on a page for all destinations
SEVERITIES = ("info", "warning", "error", "critical")


def show(
    desk: Desk, visit: Visit, template: str, title: str, status: int = 200, **values: Any
) -> web.Response:
    """A page with all that every page has."""
    return page(
        template,
        status,
        title=title,
        guest=visit.guest,
        path=visit.path,
        open=desk.door.open,
        board=desk.watch.board,
        seen=desk.watch.seen,
        width=WIDTH,
        height=HEIGHT,
        note=desk.notes.take(one(visit.fields, "note")),
        server=f"{connect.masked(desk.settings.redis.url)}, namespace {desk.namespace}",
        **values,
    )


async def overview(desk: Desk, visit: Visit) -> web.Response:
    """Every destination, and whether anything is lost."""
    running = [job for job in desk.jobs.all if not job.over]
    return show(desk, visit, "overview.html", "Overview", jobs=running)


async def destination(desk: Desk, visit: Visit) -> web.Response:
    """One of them: its figures, its gate, what is being tried, what died last."""
    name = one(visit.fields, "name")
    seen = _seen(desk, name)
    wanted = Search(destination=name)
    tried, found = await asyncio.gather(
        in_work(desk.redis, desk.namespace, name), look(desk.redis, desk.namespace, [name], wanted, None)
    )
    return show(
        desk,
        visit,
        "destination.html",
        name,
        one=seen,
        name=name,
        settings=next((each for each in desk.settings.destinations if each.name == name), None),
        limits=desk.settings.queue,
        equations=tables.equations(seen.snapshot),
        tried=tried,
        most=MOST,
        now=seen.snapshot.now,
        closed=_closed([seen]),
        rows=[letters.row(each) for each in found.letters[:10]],
        address=wanted.address(),
    )


async def work(desk: Desk, visit: Visit) -> web.Response:
    """What is in flight and what waits for another attempt, of all destinations."""
    there = [each for each in desk.watch.seen if each.snapshot.destination not in desk.watch.unseen]
    busy = [each for each in there if each.snapshot.in_flight or each.snapshot.retrying]
    busy.sort(key=lambda each: -(each.snapshot.retrying + each.snapshot.in_flight))
    shown = busy[:ROWS]
    most = max(1, min(MOST, ROWS // max(1, len(shown))))
    names = [each.snapshot.destination for each in shown]
    found = await asyncio.gather(*(in_work(desk.redis, desk.namespace, name, most) for name in names))
    tried: list[Tried] = [each for some in found for each in some]
    now = await reach.now(desk.redis)
    whole = sum(each.snapshot.in_flight + each.snapshot.retrying for each in there)
    return show(
        desk,
        visit,
        "work.html",
        "In work",
        tried=tried,
        now=now,
        closed=_closed(shown),
        whole=whole,
        hidden=len(busy) - len(shown),
    )


async def dead(desk: Desk, visit: Visit) -> web.Response:
    """Dead letters, those that are looked for."""
    now, known = await asyncio.gather(reach.now(desk.redis), reach.names(desk.redis, desk.settings))
    wanted, start = search(visit.fields, now), place(one(visit.fields, "from"))
    if wanted.destination and wanted.destination not in known:
        raise Problem(404, f"there is no destination {wanted.destination!r}")
    names = [wanted.destination] if wanted.destination else list(known)
    found = await look(desk.redis, desk.namespace, names, wanted, start)
    return show(
        desk,
        visit,
        "dead.html",
        "Dead letters",
        search=wanted,
        names=known,
        reasons=list(Reason),
        found=found,
        rows=[letters.row(each) for each in found.letters],
        first=start is None,
        budget=LOOKS,
        now=now,
    )


async def letter(desk: Desk, visit: Visit) -> web.Response:
    """One dead letter, with all that is known of it."""
    found = await _letter(desk, visit)
    text = letters.pretty(found.fields.get(b"alert", b""))
    return show(
        desk,
        visit,
        "letter.html",
        "Dead letter",
        row=letters.row(found),
        removed=desk.watch.names.get(found.destination, False),
        text=text[:SHOWN],
        cut=len(text) > SHOWN,
        size=len(found.fields.get(b"alert", b"")),
    )


async def alert(desk: Desk, visit: Visit) -> web.Response:
    """The alert of a dead letter as it was stored, to be saved."""
    found = await _letter(desk, visit)
    if found.fault:
        raise Problem(404, f"its object can't be read: {found.fault}")
    headers = {"Content-Disposition": f'attachment; filename="alert-{found.id}.json"'}
    body = found.fields.get(b"alert", b"")
    return web.Response(body=body, headers=headers, content_type="application/octet-stream")


async def way(desk: Desk, visit: Visit) -> web.Response:
    """What has become of an alert."""
    key = one(visit.fields, "key")
    receipt = await desk.receipts.find(key) if key else None
    return show(desk, visit, "way.html", "Look up", key=key, receipt=receipt)


async def send(desk: Desk, visit: Visit) -> web.Response:
    """The form of a test alert."""
    names = [each.name for each in desk.settings.destinations]
    told = {name: one(visit.fields, name) for name in ("host", "name", "severity", "status", "destination")}
    told["host"] = told["host"] or socket.gethostname()
    return show(desk, visit, "send.html", "Send a test alert", names=names, told=told, severities=SEVERITIES)


async def jobs(desk: Desk, visit: Visit) -> web.Response:
    """What runs in the background, and what has ended."""
    return show(desk, visit, "jobs.html", "Jobs", jobs=list(reversed(desk.jobs.all)))


def _closed(seen: Sequence[Seen]) -> set[str]:
    """Those whose gate is closed: what is due there waits."""
    return {each.snapshot.destination for each in seen if "state" in each.snapshot.gate}


def _seen(desk: Desk, name: str) -> Seen:
    seen = desk.watch.of(name)
    why = desk.watch.fault or desk.watch.unseen.get(name)
    if seen is None and why is not None:
        raise Problem(503, why)
    if seen is None:
        raise Problem(404, f"there is no destination {name!r}, or nothing is left of it")
    return seen


async def _letter(desk: Desk, visit: Visit) -> Letter:
    name, entry_id = one(visit.fields, "destination"), one(visit.fields, "id")
    if ID.fullmatch(entry_id):
        async for some in read(desk.redis, desk.namespace, [name], Wanted(ids=(entry_id,))):
            async for found in filled(some, desk.objects):
                return found
    raise Problem(404, "this dead letter is gone: it was replayed or discarded")

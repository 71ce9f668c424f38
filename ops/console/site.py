"""The console's table of routes, and what is asked of each request before a page or an action sees it.

Host, guest, and for what changes anything: where the form comes from, what it carries, and whether its guest
may. Takes a Desk; returns routes for `common.http.Site`. Raises Problem.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, TypeVar
from urllib.parse import quote

from aiohttp import web
from redis import exceptions as errors

from common import connect
from common.http import NAMED, PROBES, Handler, Problem, Request
from common.log import Log
from common.trouble import kind_of
from ops.console import actions, door, pages
from ops.console.actions import Next
from ops.console.desk import Desk, Visit
from ops.console.door import Guest
from ops.console.form import body, one, query
from ops.console.render import FILES, page, protected

T = TypeVar("T")
Page: TypeAlias = Callable[[Desk, Visit], Awaitable[web.Response]]
Action: TypeAlias = Callable[[Desk, Visit], Awaitable[Next]]

PAGES: Mapping[str, Page] = {
    "/": pages.overview,
    "/destination": pages.destination,
    "/work": pages.work,
    "/dead": pages.dead,
    "/dead/letter": pages.letter,
    "/dead/alert": pages.alert,
    "/way": pages.way,
    "/send": pages.send,
    "/jobs": pages.jobs,
}
ACTIONS: Mapping[str, Action] = {
    "/actions/picked": actions.picked,
    "/actions/matching": actions.matching,
    "/actions/stop": actions.stop,
    "/actions/pause": actions.pause,
    "/actions/resume": actions.resume,
    "/actions/retire": actions.retire,
    "/actions/send": actions.send,
}
SIGN_IN, SIGN_OUT, LIVE, STATIC = "/sign-in", "/sign-out", "/live", f"/static{NAMED}"
PATHS = (*PAGES, *ACTIONS, SIGN_IN, SIGN_OUT, LIVE, STATIC, *PROBES)

log = Log("console")


def routes(desk: Desk) -> dict[str, Mapping[str, Handler]]:
    """All of them."""
    return {
        **{path: _both(_page(desk, made)) for path, made in PAGES.items()},
        **{path: {"POST": _action(desk, made)} for path, made in ACTIONS.items()},
        SIGN_IN: {"GET": _form(desk), "POST": _sign_in(desk)},
        SIGN_OUT: {"POST": _sign_out(desk)},
        LIVE: {"GET": _live(desk)},
        STATIC: _both(FILES.get),
    }


def _both(handler: Handler) -> Mapping[str, Handler]:
    return {"GET": handler, "HEAD": handler}


def _page(desk: Desk, made: Page) -> Handler:
    async def handle(request: Request) -> web.StreamResponse:
        guest = desk.door.guest(request)
        if guest is None:
            return protected(_see(f"{SIGN_IN}?next={quote(request.raw_path, safe='')}"))
        visit = Visit(guest, request.path, query(request))
        return protected(await _told(desk, made(desk, visit)))

    return handle


def _action(desk: Desk, made: Action) -> Handler:
    async def handle(request: Request) -> web.StreamResponse:
        guest = desk.door.guest(request)
        if guest is None:
            raise Problem(401, "sign in first: nothing was done")
        desk.door.check_origin(request)
        fields = await body(request)
        door.check_form(guest, one(fields, "csrf"))
        if guest.read_only:
            raise Problem(403, "you may look, and change nothing")
        told = await _told(desk, made(desk, Visit(guest, request.path, fields)))
        await desk.watch.look()  # so that the next page shows what was done
        return protected(told) if isinstance(told, web.Response) else protected(_see(told))

    return handle


def _form(desk: Desk) -> Handler:
    async def handle(request: Request) -> web.StreamResponse:
        if desk.door.guest(request) is not None:
            return protected(_see(_next(one(query(request), "next"))))
        return protected(_sign_in_page(_next(one(query(request), "next"))))

    return handle


def _sign_in(desk: Desk) -> Handler:
    """No session yet, and so no token of one: the origin is what tells another site's form."""

    async def handle(request: Request) -> web.StreamResponse:
        desk.door.check_host(request)
        desk.door.check_origin(request)
        fields = await body(request)
        after = _next(one(fields, "next"))
        if desk.door.open:
            return protected(_see(after))
        await asyncio.sleep(desk.door.pause(request))
        try:
            value, name = desk.door.sign_in(request, one(fields, "token"))
        except Problem as problem:
            desk.metrics.sign_ins["unknown" if problem.status == 401 else "too_many"].inc()
            log.warning("console_sign_in", peer=request.remote, let_in=False, error=problem.detail)
            response = _sign_in_page(after, problem)
            response.headers.update(problem.headers or {})
            return protected(response)
        desk.metrics.sign_ins["let_in"].inc()
        log.warning("console_sign_in", peer=request.remote, let_in=True, user=name)
        response = _see(after)
        _set_cookie(request, response, value)
        return protected(response)

    return handle


def _sign_out(desk: Desk) -> Handler:
    async def handle(request: Request) -> web.StreamResponse:
        guest = desk.door.guest(request)
        if guest is not None:
            desk.door.check_origin(request)
            door.check_form(guest, one(await body(request), "csrf"))
            desk.door.sign_out(guest)
        response = _see(SIGN_IN)
        _set_cookie(request, response, "")
        return protected(response)

    return handle


def _live(desk: Desk) -> Handler:
    async def handle(request: Request) -> web.StreamResponse:
        def allowed() -> Guest | None:
            return desk.door.guest(request)

        if allowed() is None:
            raise Problem(401, "sign in first")
        return await desk.live.view(request, lambda: allowed() is not None)

    return handle


def _set_cookie(request: Request, response: web.Response, value: str) -> None:
    """Ends with the browser; empty: at once."""
    response.set_cookie(
        door.cookie_name(request),
        value,
        path="/",
        httponly=True,
        samesite="Strict",
        secure=door.is_secure(request),
        max_age=None if value else 0,
    )


def _sign_in_page(after: str, problem: Problem | None = None) -> web.Response:
    status = 200 if problem is None else problem.status
    return page("sign_in.html", status, after=after, fault="" if problem is None else problem.detail)


def _next(told: str) -> str:
    """A path of ours, since a browser is sent there."""
    path = told.partition("?")[0].partition("#")[0]
    return told if path in PAGES and re.fullmatch(r"[!-~]*", told) else "/"


def _see(address: str) -> web.Response:
    return web.Response(status=303, headers={"Location": address})


async def _told(desk: Desk, work: Awaitable[T]) -> T:
    """What it returns. Raises Problem (503) when Redis did not do its part."""
    try:
        return await work
    except errors.RedisError as fault:
        desk.metrics.troubled(kind_of(fault))
        told = connect.describe(fault, desk.settings.redis.url)
        raise Problem(503, told, headers={"Retry-After": "5"}) from fault

"""From values to HTML: one Jinja environment that escapes everything, and the headers of every answer.

Takes a template's name and values; returns responses. Texts from outside are made harmless to the eye, too:
what can't be printed, and what turns the direction of writing, is shown as its escape.
"""

from __future__ import annotations

import hashlib
import mimetypes
import time
from datetime import datetime
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode, urlsplit

from aiohttp import web
from jinja2 import Environment, PackageLoader, StrictUndefined

from common.http import Problem, Request
from ops.console.board import number
from ops.text import age, count, moment, plain, span

SHOWN = 65_536  # characters of an alert on a page; all of it can be saved
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # without any, a browser would send forms with the origin `null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_FOR_EVER = "public, max-age=31536000, immutable"  # a file's address has its hash


class Files:
    """What pages refer to: one style sheet, one script, one icon. In memory, each with its hash."""

    def __init__(self) -> None:
        directory = files("ops.console") / "static"
        self._files = {each.name: each.read_bytes() for each in directory.iterdir() if each.is_file()}
        self.address = {
            name: f"/static/{name}?v={hashlib.sha256(content).hexdigest()[:12]}"
            for name, content in self._files.items()
        }

    async def get(self, request: Request) -> web.StreamResponse:
        """`GET /static/{name}`."""
        name = request.path.rpartition("/")[2]
        if name not in self._files:
            raise Problem(404, "there is no such file")
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        headers = {"Content-Type": kind if kind.startswith("image/") else f"{kind}; charset=utf-8"}
        response = web.Response(body=self._files[name], headers=headers)
        response.headers["Cache-Control"] = _FOR_EVER
        return protected(response)


FILES = Files()


def _lines(text: str) -> str:
    """As `plain`, for texts of several lines."""
    return "\n".join(plain(line.expandtabs(4)) for line in text.split("\n"))


def _ago(ms: int | None) -> str:
    return "-" if ms is None else f"{age(time.time() - ms / 1000)} ago"


def _span(seconds: float) -> str:
    return age(seconds) if seconds >= 10 else span(round(seconds, 1))


def _clock(at: datetime) -> str:
    return at.strftime("%H:%M:%S UTC, %d %b")


def _link(url: str | None) -> str | None:
    """The address when a browser may be sent there."""
    try:
        parts = urlsplit(url or "")
    except ValueError:
        return None
    return url if parts.scheme in ("http", "https") and parts.netloc else None


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("ops.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        plain=plain, lines=_lines, ago=_ago, moment=moment, number=number, link=_link, query=urlencode
    )
    made.globals.update(file=FILES.address, count=count, span=_span, clock=_clock)
    return made


_templates = _environment()


def page(template: str, status: int = 200, **values: Any) -> web.Response:
    """An HTML page."""
    text = _templates.get_template(template).render(**values)
    return web.Response(
        status=status, body=text.encode("utf-8", "replace"), content_type="text/html", charset="utf-8"
    )


def refusal(request: Request, problem: Problem) -> web.StreamResponse:
    """How a person sees what is refused; a program that asks for no HTML gets the problem as it is."""
    if "text/html" not in request.headers.get("Accept", "text/html"):
        return protected(problem.response())
    response = page("refusal.html", problem.status, problem=problem, path=request.path)
    response.headers.update(problem.headers or {})
    if problem.status == 503 and request.method == "GET":
        response.headers["Refresh"] = "5"  # the page comes by itself when it can
    return protected(response)


def protected(response: web.StreamResponse) -> web.StreamResponse:
    """With the headers that keep browsers from doing what nobody asked for."""
    if not response.prepared:
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
    return response

"""Who may come in: hosts, tokens, sessions, and what a form has to carry. Before every page of the console.

Takes a request; returns its Guest. Raises Problem: 421 for a host that is none of ours, 401 for a token that
is not known, 429 after too many of them, 403 for a form that was not made here. Sessions are kept here,
bounded, and end with the process; only hashes of their names are kept.
"""

from __future__ import annotations

import ipaddress
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest
from urllib.parse import urlsplit

from msgspec import Struct

from common.http import Problem, Request
from common.settings import Console
from common.units import Address

COOKIE = "redispatch_console"
SESSIONS = 1000  # at once; the one that was used least recently gives way
TRIES = 10  # wrong tokens in a minute from one address
TRIES_OF_ALL = 60  # and from all of them
MINUTE = 60.0
SLOW = 1.0  # seconds that a sign-in waits after so many
ADDRESSES = 1000  # whose tries are remembered
_LOCAL = ("localhost", "127.0.0.1", "::1")


class Guest(Struct, frozen=True):
    """Whoever looks. `csrf` is what forms of this guest carry; `session` is empty where nobody signs in."""

    name: str
    read_only: bool
    csrf: str
    session: str = ""


class _Session(Struct, frozen=True):
    digest: bytes  # of the token
    csrf: str
    ends: float


class Door:
    """Of one process; `configure` again when the configuration has changed."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._csrf = secrets.token_urlsafe(32)  # of all those who need no token
        self._tries = _Tries(clock)
        self.configure(console)

    def configure(self, console: Console) -> None:
        """From now on these. Sessions of tokens that are gone are over."""
        self._console = console
        self._known = [(bytes.fromhex(one.sha256.reveal()), one) for one in console.tokens]
        self._guarded = bool(console.hosts) or Address.parse(console.listen).loopback
        self._hosts = {_host(name) for name in console.hosts}

    @property
    def open(self) -> bool:
        """Whether nobody needs a token."""
        return not self._known

    def guest(self, request: Request) -> Guest | None:
        """Who sent it; None for somebody who has to sign in first. Raises Problem (421)."""
        self.check_host(request)
        if self.open:
            return Guest("anonymous", self._console.read_only, self._csrf)
        name = _digest(request.cookies.get(cookie_name(request), ""))
        session = self._sessions.get(name)
        if session is None:
            return None
        one = next((one for digest, one in self._known if compare_digest(digest, session.digest)), None)
        if one is None or session.ends <= self._clock():
            del self._sessions[name]
            return None
        self._sessions.move_to_end(name)
        return Guest(one.name, one.read_only or self._console.read_only, session.csrf, name)

    def pause(self, request: Request) -> float:
        """Seconds that this sign-in has to wait, with the right token, too, so that waiting tells nothing."""
        return SLOW if self._tries.many(request.remote or "") else 0.0

    def sign_in(self, request: Request, token: str) -> tuple[str, str]:
        """The cookie's value, and who that is, whatever others have tried. Raises Problem (401, 429)."""
        digest = sha256(token.strip().encode("utf-8", "surrogatepass")).digest()
        found = None
        for known, one in self._known:  # all of them, so that the time tells nothing
            if compare_digest(known, digest):
                found = one
        if found is None:
            self._tries.failed(request.remote or "")
            raise Problem(401, "this token is not known")
        value = secrets.token_urlsafe(32)
        ends = self._clock() + self._console.session
        self._sessions[_digest(value)] = _Session(digest, secrets.token_urlsafe(32), ends)
        while len(self._sessions) > SESSIONS:
            self._sessions.popitem(last=False)
        return value, found.name

    def sign_out(self, guest: Guest) -> None:
        """The session is over, wherever its cookie is."""
        self._sessions.pop(guest.session, None)

    def check_host(self, request: Request) -> None:
        """A name that leads here by somebody else's DNS is not ours. Raises Problem (421)."""
        if not self._guarded:
            return
        host = _host(request.host or "")
        if host not in self._hosts and not _is_local(host):
            raise Problem(421, f"this console is not called {host[:200]}: see console.hosts")

    def check_origin(self, request: Request) -> None:
        """A form that another site's page sent. Raises Problem (403)."""
        origin = request.headers.get("Origin")
        site = request.headers.get("Sec-Fetch-Site", "same-origin")
        if site not in ("same-origin", "none") or not (origin is None or _same(request, origin)):
            raise Problem(403, "this was sent by a page of another site, and nothing was done")


def check_form(guest: Guest, csrf: str) -> None:
    """A form that was not made for this guest. Raises Problem (403)."""
    if not compare_digest(guest.csrf.encode(), csrf.encode("utf-8", "surrogatepass")):
        raise Problem(403, "this page is too old, and nothing was done: load it again, then repeat it")


def is_secure(request: Request) -> bool:
    """Whether the browser speaks TLS, with us or with a proxy that says so."""
    return request.secure or request.headers.get("X-Forwarded-Proto", "").lower() == "https"


def cookie_name(request: Request) -> str:
    """With a prefix that browsers give no other host, nor a page without TLS, where there is TLS."""
    return f"__Host-{COOKIE}" if is_secure(request) else COOKIE


def _digest(value: str) -> str:
    return sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


def _host(told: str) -> str:
    """Without port, brackets and capitals."""
    host, _, port = told.rpartition(":")
    host = host if host and port.isdigit() and (host.endswith("]") or ":" not in host) else told
    return host.strip("[]").rstrip(".").lower()


def _is_local(host: str) -> bool:
    if host in _LOCAL:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _same(request: Request, origin: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    told = request.headers.get("X-Forwarded-Proto", "").lower()
    scheme = parts.scheme == told if told else parts.scheme in ("http", "https")
    return scheme and parts.netloc.lower() == (request.host or "").lower()


class _Tries:
    """Wrong tokens of the last minute, by address. Whoever has a session is not asked."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._of: OrderedDict[str, list[float]] = OrderedDict()

    def many(self, address: str) -> bool:
        """Whether there were too many, from there or in all."""
        since = self._clock() - MINUTE
        recent = sum(at > since for at in self._of.get(address, ()))
        everybody = sum(at > since for tries in self._of.values() for at in tries)
        return recent >= TRIES or everybody >= TRIES_OF_ALL

    def failed(self, address: str) -> None:
        """One more. Raises Problem (429) instead when there were too many."""
        if self.many(address):
            told = "too many wrong tokens: wait a minute"
            raise Problem(429, told, headers={"Retry-After": str(int(MINUTE))})
        tries = self._of.setdefault(address, [])
        tries.append(self._clock())
        del tries[:-TRIES]
        self._of.move_to_end(address)
        while len(self._of) > ADDRESSES:
            self._of.popitem(last=False)

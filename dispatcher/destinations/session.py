"""The connections of a destination: takes what its settings say of them, returns aiohttp sessions.

Every socket passes the address guard. Names are looked up at most every DNS_TTL seconds, and only when a
connection is opened. Nothing is taken from the environment, no cookie is kept, no answer is unpacked.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextvars import ContextVar
from ssl import SSLContext

import aiohttp
from aiohttp import AddrInfoType, ClientTimeout
from msgspec import Struct
from yarl import URL

from dispatcher import guard

DNS_TTL = 30  # seconds; an open connection outlives it


class Dial:
    """Whether the attempt under way opened a connection; else it was given a used one."""

    __slots__ = ("opened",)

    def __init__(self) -> None:
        self.opened = False


# aiohttp opens sockets in tasks of its own, which inherit the context of the attempt they are for.
_dial: ContextVar[Dial] = ContextVar("dial")


class Plan(Struct, frozen=True):
    """How to connect.

    `limit` bounds the open connections, `headers` go with every request, `connect_timeout` is in seconds.
    Behind a proxy the guard sees the proxy's address only.
    """

    headers: Mapping[str, str]
    connect_timeout: float
    limit: int
    guarded: bool
    ssl: SSLContext | None = None
    proxy: URL | None = None


def watch() -> Dial:
    """Begin an attempt: whatever this task connects from now on is noted there."""
    dial = Dial()
    _dial.set(dial)
    return dial


def session(plan: Plan, *, reuse: bool) -> aiohttp.ClientSession:
    """A pool of connections; with `reuse` False each is for one request. Needs a running loop."""
    connector = aiohttp.TCPConnector(
        limit=plan.limit,
        force_close=not reuse,
        resolver=guard.Resolver(guarded=plan.guarded),
        ttl_dns_cache=DNS_TTL,
        ssl=True if plan.ssl is None else plan.ssl,
        socket_factory=_open_public if plan.guarded else _open_any,
    )
    return aiohttp.ClientSession(
        connector=connector,
        headers=plan.headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        # The whole is timed by who asks. The threshold keeps aiohttp from rounding up to whole seconds.
        timeout=ClientTimeout(None, plan.connect_timeout, ceil_threshold=plan.connect_timeout + 1),
        trust_env=False,
        proxy=plan.proxy,
    )


def _open_public(address: AddrInfoType) -> socket.socket:
    opened = guard.open_socket(address)
    _dial.get().opened = True
    return opened


def _open_any(address: AddrInfoType) -> socket.socket:
    _dial.get().opened = True
    return socket.socket(*address[:3])

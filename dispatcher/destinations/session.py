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

    `limit` bounds the open connections, `headers` go with every request. Behind a proxy the guard sees the
    proxy's address only.
    """

    headers: Mapping[str, str]
    timeout: ClientTimeout
    limit: int
    guarded: bool
    ssl: SSLContext | None = None
    proxy: URL | None = None


def within(seconds: float, connect: float) -> ClientTimeout:
    """`seconds` for all of one exchange, of which `connect` at most for its connection."""
    # The threshold keeps aiohttp from rounding timeouts above 5 s up to whole seconds.
    return ClientTimeout(seconds, min(connect, seconds), ceil_threshold=seconds + 1)


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
        timeout=plan.timeout,
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

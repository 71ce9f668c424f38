"""The way to Redis or Valkey: a client that fails fast, and what a server must be like.

Takes the `redis` section; returns a client (RESP2, bytes, no retries of its own: a repeated script call
is ours to decide) or what is known of the server. Raises Unusable for a server that can't be worked with,
and redis-py's ConnectionError or TimeoutError for one that isn't there.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec import Struct
from redis import exceptions as errors
from redis.asyncio import BlockingConnectionPool, Connection, Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from common import redis_url, settings, tls_faults
from common.connection import QUICK, QuickConnection, Tcp
from common.redis_url import Kind, RedisUrl
from common.redis_url import masked as masked
from common.sentinel import FoundTcp, FoundTls, Primary, Unknown
from common.units import Address

FLOOR = {"redis": (7, 0), "valkey": (7, 2)}
FSYNC_FLOOR = (7, 2)


class Unusable(Exception):
    """The server is there and can't be used; the text says what to do."""


class Server(Struct, frozen=True):
    """What a server says of itself."""

    kind: str
    version: tuple[int, ...]
    cluster: bool
    aof: bool
    policy: str
    maxmemory: int

    @property
    def unsafe(self) -> tuple[str, ...]:
        """What may cost alerts here, for the log and the metric `redis_unsafe`."""
        return tuple(
            kind
            for kind, holds in (("no_aof", not self.aof), ("eviction", self.policy != "noeviction"))
            if holds
        )


def client(redis: settings.Redis, *, connections: int = 32, blocking: float = 0.0) -> Redis:
    """A client whose pool waits for a free connection instead of raising.

    `blocking` is the longest BLOCK, in seconds, of a command sent through it: the socket's timeout lies
    above it, so that waiting in vain is no error.
    """
    url = redis_url.parse(redis.url)
    options: dict[str, Any] = dict(parse_url(url.plain)) | {
        "socket_timeout": redis.timeout + blocking,
        "socket_connect_timeout": redis.timeout,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
    }
    quick = QUICK[options.pop("connection_class", Connection)]
    if url.kind is Kind.SENTINEL:
        primary = Primary(url.nodes, url.service, partial(_sentinel, url, quick, options))
        options = options | {"primary": primary}
        quick = FoundTcp if quick is Tcp else FoundTls
    return Redis.from_pool(
        BlockingConnectionPool(
            connection_class=quick, max_connections=connections, timeout=redis.timeout, **options
        )
    )


def _sentinel(
    url: RedisUrl, quick: type[QuickConnection], options: dict[str, Any], node: Address
) -> QuickConnection:
    """A connection to a sentinel: its own user and password, and no database."""
    ours = {"username": url.user, "password": url.password, "db": 0, "driver_info": None}
    return quick(**options | ours | {"host": node.host, "port": node.port})


def allow(redis: Redis, connections: int) -> None:
    """Let a client's pool have so many connections, if it may not have more already."""
    pool = redis.connection_pool
    pool.max_connections = max(pool.max_connections, connections)


async def inspect(redis: Redis, section: settings.Redis, durability: str = "written") -> Server:
    """What the server is, having refused what can't be worked with."""
    try:
        server = await _ask(redis)
    except (errors.AuthenticationError, errors.AuthorizationError) as fault:
        raise Unusable(
            f"{masked(section.url)} refuses user or password ({fault}): see redis.url, REDISPATCH_REDIS_URL"
        ) from fault
    except errors.ResponseError as fault:
        raise Unusable(
            f"{masked(section.url)} can't be used ({fault}): see redis.url, REDISPATCH_REDIS_URL"
        ) from fault
    named = f"{server.kind} {'.'.join(map(str, server.version))} at {masked(section.url)}"
    if server.version[:2] < FLOOR[server.kind]:
        raise Unusable(f"{named} is too old: redispatch needs Redis 7.0, Valkey 7.2 or newer")
    if server.policy != "noeviction" and not section.allow_eviction:
        raise Unusable(
            f"{named} has maxmemory-policy {server.policy} and may evict alerts: "
            "set it to noeviction, or redis.allow_eviction if you accept that"
        )
    if durability == "fsynced" and not (server.aof and server.version[:2] >= FSYNC_FLOOR):
        why = "has no AOF (appendonly yes)" if not server.aof else "lacks WAITAOF (Redis 7.2, Valkey)"
        raise Unusable(f"ingest.durability is fsynced, but {named} {why}")
    return server


def describe(fault: errors.RedisError, url: str) -> str:
    """One line for a person whose Redis does not answer."""
    match fault:
        case Unknown():
            what = f"can't be found: {fault}."
        case errors.TimeoutError():
            tls = url.startswith("rediss")
            what = f"does not answer in time: is it running{', and with TLS on this port' if tls else ''}?"
        case errors.ConnectionError():
            what = tls_faults.why(fault, url) or f"can't be reached{_why(fault)}: is it running?"
        case errors.InvalidResponse():
            what = "is something else, which does not speak its protocol."
        case _:
            what = f"answers: {fault}."
    return f"Redis at {masked(url)} {what} The address is redis.url or REDISPATCH_REDIS_URL"


def _why(fault: errors.ConnectionError) -> str:
    """What the system said, which redis-py wraps into a sentence of its own."""
    cause = fault.__context__
    if isinstance(cause, ConnectionRefusedError):  # asyncio and uvloop have different words for it
        return " (connection refused)"
    return f" ({cause.strerror or cause})" if isinstance(cause, OSError) else ""


async def _ask(redis: Redis) -> Server:
    info = await redis.info("everything")
    kind = "valkey" if info.get("server_name") == "valkey" or "valkey_version" in info else "redis"
    version = str(info.get("valkey_version" if kind == "valkey" else "redis_version", "0"))
    return Server(
        kind=kind,
        version=tuple(int(part) for part in version.split(".") if part.isdigit()),
        cluster=bool(info.get("cluster_enabled", 0)),
        aof=bool(info.get("aof_enabled", 0)),
        policy=str(info.get("maxmemory_policy", "noeviction")),
        maxmemory=int(info.get("maxmemory", 0)),
    )

"""The way to Redis or Valkey: a client that fails fast, and what a server must be like.

Takes the `redis` section; returns a client (RESP2, bytes, no retries of its own: a repeated script call
is ours to decide) or what is known of the server. Raises Unusable for a server that can't be worked with,
and redis-py's ConnectionError or TimeoutError for one that isn't there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import Struct, structs
from redis import exceptions as errors
from redis.asyncio import BlockingConnectionPool, Connection, Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from common import redis_url, settings, tls_faults
from common.cluster import Cluster, Node
from common.connection import QUICK, QuickConnection, Tcp
from common.redis_url import Kind, RedisUrl
from common.redis_url import masked as masked
from common.sentinel import Away, FoundTcp, FoundTls, Primary, Unknown
from common.trouble import note, server_of
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
    mode: str = ""  # "sentinel" is none
    others: bool = False  # whether some of the Cluster's keys are elsewhere

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
    pool = partial(BlockingConnectionPool, max_connections=connections, timeout=redis.timeout)
    match url.kind:
        case Kind.SERVER:
            return Redis.from_pool(pool(connection_class=quick, **options))
        case Kind.SENTINEL:
            found = FoundTcp if quick is Tcp else FoundTls
            primary = Primary(url.nodes, url.service, partial(_sentinel, url, quick, options))
            return Redis.from_pool(pool(connection_class=found, **options, primary=primary))
        case Kind.CLUSTER:
            return Cluster(
                url.nodes,
                lambda node: pool(connection_class=quick, **_to(node, options)),
                lambda node: quick(**_to(node, options)),
            )


def _to(node: Address, options: dict[str, Any]) -> dict[str, Any]:
    return options | {"host": node.host, "port": node.port}


def _sentinel(
    url: RedisUrl, quick: type[QuickConnection], options: dict[str, Any], node: Address
) -> QuickConnection:
    """A connection to a sentinel: its own user and password, and no database."""
    ours = {"username": url.user, "password": url.password, "db": 0, "driver_info": None}
    return quick(**_to(node, options | ours))


def allow(redis: Redis, connections: int) -> None:
    """Let a client's pool have so many connections, if it may not have more already."""
    if isinstance(redis, Cluster):
        redis.allow(connections)
    else:
        pool = redis.connection_pool
        pool.max_connections = max(pool.max_connections, connections)


async def inspect(redis: Redis, section: settings.Redis, durability: str = "written") -> Server:
    """What the server is, having refused what can't be worked with; of a Cluster, what all primaries are."""
    where = masked(section.url)
    try:
        if isinstance(redis, Cluster):
            servers = {f"{node.name} of {where}": await _of(node) for node in await redis.primaries()}
        else:
            servers = {where: await _ask(redis)}
    except (errors.AuthenticationError, errors.AuthorizationError) as fault:
        raise Unusable(
            f"{_named(fault, where)} refuses user or password ({fault}): see redis.url, REDISPATCH_REDIS_URL"
        ) from fault
    except errors.ResponseError as fault:
        raise Unusable(f"{where} can't be used ({fault}): see redis.url, REDISPATCH_REDIS_URL") from fault
    for at, server in servers.items():
        _refuse(server, at, section, durability, cluster=isinstance(redis, Cluster))
    return _together(list(servers.values()))


def _refuse(server: Server, at: str, section: settings.Redis, durability: str, *, cluster: bool) -> None:
    named = f"{server.kind} {'.'.join(map(str, server.version))} at {at}"
    if server.mode == "sentinel":
        raise Unusable(f"{named} is a sentinel: the address is redis+sentinel://host:port/name/0")
    if server.others and not cluster:
        raise Unusable(f"{named} is one server of a Cluster: the address is redis+cluster://host:port,...")
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


def _together(servers: Sequence[Server]) -> Server:
    """The oldest version, the worst of the rest, all of the memory (0: some have no limit)."""
    oldest = min(servers, key=lambda server: server.version)
    limits = [server.maxmemory for server in servers]
    return structs.replace(
        oldest,
        aof=all(server.aof for server in servers),
        policy=next((each.policy for each in servers if each.policy != "noeviction"), "noeviction"),
        maxmemory=sum(limits) if all(limits) else 0,
    )


def describe(fault: errors.RedisError, url: str) -> str:
    """One line for a person whose Redis does not answer; of several servers it names the one."""
    what = _what(fault, url)
    return f"Redis at {_named(fault, masked(url))} {what} The address is redis.url or REDISPATCH_REDIS_URL"


def _what(fault: BaseException, url: str) -> str:
    match fault:
        case Away(__cause__=errors.RedisError() as cause):
            count = len(redis_url.parse(url).nodes)
            asked = f"none of its sentinels ({count}) can be asked"
            return f"can't be found: {asked}: {server_of(cause)} {_what(cause, url)}"
        case Unknown():
            return f"can't be found: {fault}."
        case errors.TimeoutError():
            tls = url.startswith("rediss")
            return f"does not answer in time: is it running{', and with TLS on this port' if tls else ''}?"
        case errors.ConnectionError():
            return tls_faults.why(fault, url) or f"can't be reached{_why(fault)}: is it running?"
        case errors.InvalidResponse():
            return "is something else, which does not speak its protocol."
        case _:
            return f"answers: {fault}."


def _named(fault: errors.RedisError, where: str) -> str:
    server = server_of(fault)
    return f"{server} of {where}" if server else where


def _why(fault: BaseException) -> str:
    """What the system said, which redis-py wraps into a sentence of its own."""
    cause = fault.__context__
    if isinstance(cause, ConnectionRefusedError):  # asyncio and uvloop have different words for it
        return " (connection refused)"
    return f" ({cause.strerror or cause})" if isinstance(cause, OSError) else ""


async def _of(node: Node) -> Server:
    try:
        return await _ask(node.redis)
    except errors.RedisError as fault:
        note(fault, node.address)
        raise


async def _ask(redis: Redis) -> Server:
    info = await redis.info("everything")
    kind = "valkey" if info.get("server_name") == "valkey" or "valkey_version" in info else "redis"
    version = str(info.get("valkey_version" if kind == "valkey" else "redis_version", "0"))
    cluster = bool(info.get("cluster_enabled", 0))
    return Server(
        kind=kind,
        version=tuple(int(part) for part in version.split(".") if part.isdigit()),
        cluster=cluster,
        aof=bool(info.get("aof_enabled", 0)),
        policy=str(info.get("maxmemory_policy", "noeviction")),
        maxmemory=int(info.get("maxmemory", 0)),
        mode=str(info.get("redis_mode", info.get("server_mode", ""))),
        others=cluster and await _has_others(redis),
    )


async def _has_others(redis: Redis) -> bool:
    try:
        return int((await redis.execute_command("CLUSTER INFO"))["cluster_size"]) > 1
    except errors.NoPermissionError:  # its user needs no such right
        return False

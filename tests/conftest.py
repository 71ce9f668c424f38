"""Fixtures for every test: real servers of three kinds, clients to them, settings, a receiver, processes."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from redis.asyncio import Redis

from common import connect
from common.settings import Redis as RedisSection
from common.units import Duration
from tests.support.forked import Forker
from tests.support.processes import Processes
from tests.support.proxy import Proxy
from tests.support.receiver import Receiver
from tests.support.servers import KINDS, Kind, Pool, Server

# A machine that is busy with something else is no failure.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.hookimpl(trylast=True)  # after they were put in a random order
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest begin first, and those that mostly wait for processes are spread evenly among the others.

    So all cores have work to the end. Otherwise the order stays as it was.
    """
    places: list[tuple[float, pytest.Item]] = []
    waiting = [item for item in items if "e2e" in item.path.parts]
    quick = [item for item in items if "e2e" not in item.path.parts]
    for group, end in ((waiting, 0.9), (quick, 1.0)):
        places += [(end * n / len(group), item) for n, item in enumerate(group)]
    items[:] = [
        item
        for _, item in sorted(
            places, key=lambda place: -1.0 if place[1].get_closest_marker("long") else place[0]
        )
    ]


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """The servers of this run."""
    servers = Pool(tmp_path_factory.mktemp("servers"))
    yield servers
    servers.close()


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, pool: Pool) -> Server:
    """An empty server; the test runs once for each kind, with `servers.one_kind` only for Valkey."""
    kind: Kind = request.param
    return pool.get(kind)


@pytest.fixture
def valkey(pool: Pool) -> Server:
    """An empty Valkey, for a test that the kind of server makes no difference to."""
    return pool.get("valkey")


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """`new_server("valkey", *options, aof=True)`: a server of one's own, to kill, to freeze, to fill."""
    servers: list[Server] = []

    def start(kind: Kind = "valkey", *options: str, aof: bool = False) -> Server:
        servers.append(Server(kind, tmp_path / f"{kind}-{len(servers)}", aof=aof))
        return servers[-1].start(*options)

    yield start
    for server in servers:
        server.kill()


@pytest.fixture
async def connected() -> AsyncIterator[Callable[[Server | str], Redis]]:
    """`connected(server)`, or a URL: a client as the services make it (RESP2, bytes, no retries)."""
    async with AsyncExitStack() as stack:

        def client(where: Server | str) -> Redis:
            url = where if isinstance(where, str) else where.url
            made = connect.client(RedisSection(url=url, timeout=Duration(10)))
            stack.push_async_callback(made.aclose, close_connection_pool=True)
            return made

        yield client


@pytest.fixture
async def redis(server: Server, connected: Callable[[Server | str], Redis]) -> Redis:
    """A client of `server`."""
    return connected(server)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A destination that answers 200 until it is told otherwise."""
    async with Receiver() as made:
        yield made


@pytest.fixture
async def proxied() -> AsyncIterator[Callable[[Server], Proxy]]:
    """`await proxied(server).start()`: a proxy before a server."""
    async with AsyncExitStack() as stack:

        def proxy(server: Server) -> Proxy:
            made = Proxy(server.host, server.port)
            stack.push_async_callback(made.close)
            return made

        yield proxy


@pytest.fixture(scope="session")
def forker() -> Iterator[Forker | None]:
    """What our own programs are forked from, on Linux."""
    made = Forker() if sys.platform == "linux" else None
    yield made
    if made is not None:
        made.close()


@pytest.fixture
async def processes(tmp_path: Path, forker: Forker | None) -> AsyncIterator[Processes]:
    """Real processes of ours, all gone when the test is over."""
    async with Processes(tmp_path, forker) as made:
        yield made

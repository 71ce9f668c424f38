"""TLS where there are several servers: each wants a client's certificate, sentinels have users of their own.

Both services deliver while the primary is killed, or a slot moves; then an operator looks, and errs.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from msgspec import structs

from tests.support.certificates import Authority, Files
from tests.support.cluster import Cluster, slot_of
from tests.support.console import Browser, console
from tests.support.fleet import AT, NAME, Fleets
from tests.support.ops import Command
from tests.support.sentinels import Sentinels
from tests.support.servers import Server, as_user
from tests.support.settings import build

REFUSED = "shows a certificate that is refused: "


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """What servers and clients have; of another authority there is `foreign`, and `other` itself."""
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    authority.issue("server")
    other.issue("foreign")
    return Files(tmp_path)


class Operator(Command):
    """Has an address with a user, and tells what is said to whoever has another one."""

    def __init__(self, directory: Path, servers: Sentinels | Cluster) -> None:
        super().__init__(directory, servers, (NAME,))
        self.url = as_user(servers.url, "operator")

    def sees_all_is_well(self) -> None:
        """By every command that looks."""
        self.sections["redis"]["url"] = self.url
        seen = self.json("status")
        assert [(one["name"], one["depth"]) for one in seen["destinations"]] == [(NAME, 0)]
        assert [one["unaccounted"] for one in seen["ledger"]] == [0]
        assert self.json("dead", "list") == []
        assert "is valid" in self("check").output

    def is_told(self, at: str, instead: str = "") -> str:
        """By a command that sees nothing, with another address in which `at` is replaced."""
        self.sections["redis"]["url"] = re.sub(at, instead, self.url)
        return self("dead", "list", code=1).output


async def who_sees_all_is_well(directory: Path, servers: Sentinels | Cluster) -> Operator:
    """Whoever looks at the console does, too."""
    operator = Operator(directory, servers)
    await asyncio.to_thread(operator.sees_all_is_well)
    settings = build(as_user(servers.url, "console"), [NAME])
    async with console(settings) as served, Browser(served.url) as browser:
        assert "Nothing is lost: all" in (await browser.get("/")).words
    return operator


async def test_sentinels(fleets: Fleets, files: Files, tmp_path: Path) -> None:
    servers = Sentinels("redis", tmp_path / "servers", tls=files)
    try:
        await asyncio.to_thread(servers.start)
        fleet = await fleets(servers, ingest={"durability": "replicated"})
        ingest, _ = await fleet.both()
        async with fleet.load(ingest):
            await fleet.flowing()
            servers.primary().kill()
            await ingest.wait_metric("redispatch_redis_errors_total", 1)
            await fleet.flowing()
        await fleet.settled()
        await asyncio.to_thread(servers.agree)
        operator = await who_sees_all_is_well(tmp_path, servers)
        await asyncio.to_thread(what_is_wrong_with_sentinels, servers, operator, files)
    finally:
        servers.close()


def what_is_wrong_with_sentinels(servers: Sentinels, operator: Operator, files: Files) -> None:
    first = servers.sentinels[0]
    nobody = f"can't be found: none of its sentinels (3) can be asked: {first.host}:{first.port} "
    assert f"{nobody}{REFUSED}self-signed certificate" in operator.is_told("authority.crt", "other.crt")
    assert nobody in operator.is_told("&ssl_(cert|key)file=[^&]*")  # and then what came first
    told = operator.is_told("(?<=sentinel_password=)", "not-")
    assert "its sentinels refuse user or password " in told
    assert "see sentinel_username, sentinel_password." in told
    primary = servers.primary()
    show_another(primary, files)
    told = operator.is_told("")
    assert f"Redis at {primary.host}:{primary.port} of rediss+sentinel://operator:***@" in told
    assert f"{REFUSED}unable to get local issuer certificate. See ssl_ca_certs." in told


def show_another(server: Server, files: Files) -> None:
    """From now on it has a certificate that nobody trusts."""
    _, certificate, key = structs.replace(files, own="foreign").paths
    server.cli("CONFIG", "SET", "tls-cert-file", certificate, "tls-key-file", key)


async def test_cluster(fleets: Fleets, files: Files, tmp_path: Path) -> None:
    # None of them is taken for dead just because it is slow.
    servers = Cluster("redis", tmp_path / "servers", tls=files, timeout=60_000)
    try:
        await asyncio.to_thread(servers.start)
        fleet = await fleets(servers)
        ingest, _ = await fleet.both()
        async with fleet.load(ingest):
            await fleet.flowing()
            slot = slot_of(AT.stream)
            source = servers.owner(slot)
            target = next(node for node in servers.nodes if node is not source)
            await asyncio.to_thread(servers.move, slot, target)
            await fleet.flowing()
        await fleet.settled()
        operator = await who_sees_all_is_well(tmp_path, servers)
        await asyncio.to_thread(what_is_wrong_with_a_cluster, servers, operator, files)
    finally:
        servers.close()


def what_is_wrong_with_a_cluster(servers: Cluster, operator: Operator, files: Files) -> None:
    first, another, _ = servers.nodes
    told = operator.is_told("authority.crt", "other.crt")
    assert f"Redis at {first.host}:{first.port} of rediss+cluster://operator:***@" in told
    assert f"{REFUSED}self-signed certificate" in told
    show_another(another, files)
    told = operator.is_told("")
    assert f"Redis at {another.host}:{another.port} of rediss+cluster://operator:***@" in told
    assert f"{REFUSED}unable to get local issuer certificate. See ssl_ca_certs." in told
    first.cli("CONFIG", "SET", "cluster-announce-hostname", "localhost")
    first.cli("CONFIG", "SET", "cluster-preferred-endpoint-type", "hostname")
    told = operator.is_told("")  # they are asked by the names that the Cluster tells
    assert f"Redis at localhost:{first.port} of rediss+cluster://" in told
    assert "not valid for 'localhost'. The name or address that it is asked by has to be in it." in told

"""What a user of the server lacks is found by name, on every kind of server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from common import rights
from common.redis_url import Kind
from tests.support.servers import PASSWORD, Server, as_user

NAMESPACE = "own"
Lacking: TypeAlias = Callable[..., Awaitable[list[str]]]
each_role = pytest.mark.parametrize("name", rights.ROLES)


@pytest.fixture
async def lacking(server: Server, connected: Callable[[Server | str], Redis]) -> Lacking:
    """`await lacking(role, *words)`: what a user with the role's rules and those words lacks."""
    client = connected(as_user(server.url, "probed"))

    async def ask(role: rights.Role, *words: str, without: str = "") -> list[str]:
        rules = [rule for rule in rights.rules(role, NAMESPACE) if rule != without]
        server.cli("ACL", "SETUSER", "probed", "reset", "on", f">{PASSWORD}", *rules, *words)
        return await rights.missing(client, role, NAMESPACE)

    return ask


@each_role
async def test_each_command_and_each_key(name: str, lacking: Lacking) -> None:
    role = rights.ROLES[name]
    assert await lacking(role) == []
    assert await lacking(role, "+@all", "allkeys") == []
    for command in set(rights.commands(role)) - {"EVAL", "EVALSHA"}:
        assert await lacking(role, without=f"+{command.lower()}") == [command]
    for kind in set(role.writes) - {"readings"}:  # which the pattern of `stream` covers
        pattern = rights.pattern(kind, NAMESPACE)
        assert await lacking(role, without=f"~{pattern}") == [pattern]
    for kind in role.reads:
        pattern = rights.pattern(kind, NAMESPACE)
        assert await lacking(role, without=f"%R~{pattern}") == [pattern]
    assert await lacking(role, "-xadd" if name != "operator" else "-xdel", without="+info") == sorted(
        ["INFO", "XADD" if name != "operator" else "XDEL"]
    )


@each_role
async def test_who_may_not_even_ask(name: str, lacking: Lacking) -> None:
    with pytest.raises(NoPermissionError, match="eval"):
        await lacking(rights.ROLES[name], "-eval", "-evalsha")


async def test_what_durability_needs(server: Server, connected: Callable[[Server | str], Redis]) -> None:
    role = rights.ROLES["ingest"]
    server.cli("ACL", "SETUSER", "probed", "reset", "on", f">{PASSWORD}", *rights.rules(role, NAMESPACE))
    client = connected(as_user(server.url, "probed"))
    assert await rights.missing(client, role, NAMESPACE, "replicated") == ["WAIT"]
    server.cli("ACL", "SETUSER", "probed", "+wait")
    assert await rights.missing(client, role, NAMESPACE, "replicated") == []


@pytest.mark.parametrize(
    ("kind", "needs"), [(Kind.SENTINEL, ["ROLE"]), (Kind.CLUSTER, ["ASKING", "CLUSTER|SLOTS"])]
)
async def test_what_finding_the_server_needs(
    valkey: Server, connected: Callable[[Server | str], Redis], kind: Kind, needs: list[str]
) -> None:
    role = rights.ROLES["dispatcher"]
    valkey.cli("ACL", "SETUSER", "probed", "reset", "on", f">{PASSWORD}", *rights.rules(role, NAMESPACE))
    client = connected(valkey.url.replace("//", f"//probed:{PASSWORD}@"))
    assert await rights.missing(client, role, NAMESPACE, kind=kind) == needs
    valkey.cli("ACL", "SETUSER", "probed", *(f"+{command.lower()}" for command in needs))
    assert await rights.missing(client, role, NAMESPACE, kind=kind) == []

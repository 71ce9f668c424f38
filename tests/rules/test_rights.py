"""The rights of each role are those that its scripts and its own commands need: no key more, none less."""

from __future__ import annotations

import pytest

from common import rights
from tests.rules import lua
from tests.rules.test_lua import FILES, KINDS, used

# Keys that a service touches by commands of its own, not by a script.
BY_ITSELF = {
    "ingest": {"destinations", "record", "canary"},
    "dispatcher": {"destinations", "stream", "objects", "sweep", "canary"},
    "operator": {"destinations", "dead", "stream", "retry"},
    "console": {"destinations", "dead", "stream", "retry", "record"},
}


@pytest.mark.parametrize("name", rights.ROLES)
def test_keys(name: str) -> None:
    role = rights.ROLES[name]
    handed = {kind for script in role.scripts for kind in used(script.split("/")[1])}
    assert {*role.writes, *role.reads} == handed | BY_ITSELF[name]
    assert handed <= set(role.writes)  # the server wants that of every key that a script is given
    assert {*role.writes, *role.reads} <= set(KINDS)


@pytest.mark.parametrize("name", FILES)
def test_no_command_of_a_script_is_overlooked(name: str) -> None:
    text = FILES[name].read_text("utf-8")
    told = rights.called(text)
    assert {call.command for call in lua.calls(text)} <= {command.partition("|")[0] for command in told}


def test_every_script_is_somebodys() -> None:
    owned = {script for role in rights.ROLES.values() for script in role.scripts}
    assert owned | {"common/rights"} == {f"{path.parent.parent.name}/{path.stem}" for path in FILES.values()}

"""Types of destination: ours, and those that an installed package adds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from textwrap import dedent

import pytest

from common.config import ConfigError, load
from dispatcher.destinations import kinds
from dispatcher.destinations.base import Unusable
from dispatcher.destinations.discard import Settings as Discard

PACKAGE = '''
from common.outcomes import Outcome, OutcomeKind
from common.settings import Destination

class Settings(Destination, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A room."""
    room: str

class Matrix:
    def __init__(self, settings): self.room = settings.room
    def deliver(self, delivery): return Outcome(OutcomeKind.DELIVERED)
    async def close(self): pass

make = Matrix

def faults(settings):
    if not settings.room.startswith("!"):
        yield ("room",), "expected a room's id, which begins with !"
'''


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A package that adds `matrix`, and two that can't be used."""
    (tmp_path / "a_matrix_package.py").write_text(PACKAGE)
    (tmp_path / "a_hollow_package.py").write_text("make = print")
    monkeypatch.syspath_prepend(str(tmp_path))
    points = {"matrix": "a_matrix_package", "hollow": "a_hollow_package", "absent": "no_such_package"}
    found = EntryPoints(EntryPoint(name, module, kinds.GROUP) for name, module in points.items())
    monkeypatch.setattr(kinds, "entry_points", lambda *, group: found.select(group=group))
    _forget()
    yield
    _forget()
    for module in points.values():
        sys.modules.pop(module, None)


def _forget() -> None:
    kinds._module.cache_clear()
    kinds._others.cache_clear()


def faults(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "r.yaml"
    file.write_text(dedent(text))
    try:
        load(str(file), {}, kinds)
    except ConfigError as error:
        return [f"{fault.place.partition(' ')[2]}: {fault.message}" for fault in error.faults]
    return []


def test_a_package_adds_a_type(installed: None, tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("destinations: [{name: a, type: matrix, room: '!x', timeout: 3s}]")
    (to,) = load(str(file), {}, kinds).destinations
    one = kinds.make(to)
    assert type(one).__name__ == "Matrix"
    assert (vars(one), to.timeout) == ({"room": "!x"}, 3.0)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("type: matrix, room: x", "destinations[0].room: expected a room's id, which begins with !"),
        ("type: matrix", "destinations[0].room: is missing"),
        ("type: matrix, room: '!x', rom: 1", "destinations[0].rom: is unknown; did you mean room?"),
        ("type: matrx, room: x", "destinations[0].type: is unknown; did you mean matrix?"),
        ("type: hollow", "destinations[0].type: can't be loaded: its module needs Settings"),
        ("type: absent", "destinations[0].type: can't be loaded: ModuleNotFoundError: No module named"),
        ("type: matrix, room: '!x', batch: {}", "destinations[0].batch: matrix takes one alert at a time"),
    ],
)
def test_what_is_wrong_with_it_is_told_with_its_place(
    installed: None, tmp_path: Path, given: str, fault: str
) -> None:
    (line,) = faults(tmp_path, f"destinations: [{{name: a, {given}}}]")
    assert line.startswith(fault)


def test_what_is_asked_of_an_unknown_type() -> None:
    one = Discard(name="a", type="nothing")
    assert list(kinds.faults(one)) == list(kinds.warnings(one)) == []
    with pytest.raises(Unusable, match="destination a: type 'nothing' is not one of webhook"):
        kinds.make(one)


def test_who_delivers_nothing_needs_no_secret_of_a_destination(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(
        "destinations: [{name: a, type: whatever, url: '${NOT_SET}', retry: {max_age: 1h}, nonsense: [1]}]"
    )
    (to,) = load(str(file), {}).destinations
    assert (to.name, to.type, to.retry.max_age) == ("a", "whatever", 3600.0)

"""The Lua files keep to their rules: a full header, keys out of KEYS only; docs/keys.md says what they do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.protocol_pages import described_keys, header, script_files
from tests.rules import lua

FILES = {path.stem: path for path in script_files()}
KINDS = {key.name: key for key in described_keys()}
# What the names in a file stand for where they are not the kind's own.
MEANT = {
    "append": {"KEYS": "record"},
    "observe": {"key": "incident", "KEYS": "incident"},
    "evaluate": {"stream": "readings", "key": "rule"},
    "settle": {"s.record": "record", "KEYS": "record"},
    "claim": {"KEYS": "record resolved"},
}
WITHOUT_A_SCRIPT = {"destinations", "sweep", "canary"}
AT_MAXMEMORY = "flags=allow-oom"

each_script = pytest.mark.parametrize("name", FILES)


def used(name: str) -> dict[str, set[str]]:
    """The kinds of key that a script touches, with the commands it calls on them."""
    meant, found = MEANT.get(name, {}), dict[str, set[str]]()
    for call in lua.calls(FILES[name].read_text("utf-8")):
        if call.key:
            word = re.sub(r"\[.*|unpack\((KEYS).*", lambda m: m[1] or "", call.key)
            for kind in meant.get(word, word).split():
                found.setdefault(kind, set()).add(call.command)
    return found


def test_names_are_told_apart() -> None:
    assert len(FILES) == len(script_files()) > 10


@each_script
def test_header(name: str) -> None:
    head = header(FILES[name].read_text("utf-8"))
    assert head[0].startswith("#!lua")
    assert head[1].startswith(f"-- {name}: ")
    for word in ("KEYS", "ARGV", "Returns"):
        assert any(re.match(rf"-- {word}\b", line) for line in head), f"{name}: no {word}"


@each_script
def test_only_what_brings_something_in_is_refused_at_maxmemory(name: str) -> None:
    shebang = FILES[name].read_text("utf-8").split("\n", 1)[0]
    brings = FILES[name].parent.parent.name == "ingest" or name == "append"
    assert shebang == ("#!lua" if brings else f"#!lua {AT_MAXMEMORY}")


@each_script
def test_every_key_is_declared(name: str) -> None:
    text = FILES[name].read_text("utf-8")
    known = lua.out_of_keys(text)
    calls = [call for call in lua.calls(text) if call.command not in lua.KEYLESS]
    assert calls or name == "rights"  # which only asks what may be called
    assert [call for call in calls if not lua.is_key(call.key, known)] == []


@each_script
def test_kinds_and_types_are_those_of_the_page(name: str) -> None:
    for kind, commands in used(name).items():
        assert kind in KINDS, f"{name} touches {kind}"
        for command in commands:
            of = "string" if command in lua.STRINGS else lua.TYPES.get(command[0])
            assert of in (None, KINDS[kind].type), f"{name}: {command} on {kind}"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in WITHOUT_A_SCRIPT])
def test_writers_and_readers_are_those_of_the_page(kind: str) -> None:
    touching = {name: commands for name in FILES for at, commands in used(name).items() if at == kind}
    writing = {name for name, commands in touching.items() if commands & lua.WRITING}
    assert set(KINDS[kind].writers) == writing
    readers = {reader for reader in KINDS[kind].readers if reader in FILES}
    assert set(touching) - writing <= readers
    assert readers <= set(touching)


@each_script
def test_header_names_the_keys(name: str) -> None:
    """What is said to be given and what is touched is the same."""
    head = re.sub(r"<\w+>", "", " ".join(header(FILES[name].read_text("utf-8"))))
    told = re.split(r"\b(?:ARGV|Returns)\b", head.partition("-- KEYS ")[2])[0]
    named = {kind for kind in KINDS if re.search(rf"\b{kind}s?\b", told)}
    assert named == set(used(name))


def test_every_script_is_called() -> None:
    root = Path(__file__).resolve().parents[2]
    called = {
        f"{package}/{name}"
        for package in ("common", "ingest", "dispatcher", "ops")
        for file in (root / package).rglob("*.py")
        for name in re.findall(rf'Script\("{package}", "(\w+)"\)', file.read_text("utf-8"))
    }
    by_hand = {"ops/list", "ops/show", "ops/stats", "ops/ledger"}  # for redis-cli alone
    assert called | by_hand == {f"{path.parent.parent.name}/{path.stem}" for path in FILES.values()}


UNDECLARED = """#!lua
local stream, other = KEYS[1], ARGV[1]
local function ask(key) return redis.call('GET', key) end
redis.call('XLEN', stream)
redis.call('XLEN', stream .. ':dead')
redis.call('XLEN', other)
ask(KEYS[2])
ask(other)
"""


def test_an_undeclared_key_is_seen() -> None:
    known = lua.out_of_keys(UNDECLARED)
    wrong = [call.key for call in lua.calls(UNDECLARED) if not lua.is_key(call.key, known)]
    assert wrong == ["key", "stream .. ':dead'", "other"]


def test_dead_letters_are_chosen_in_one_way() -> None:
    """Each file stands alone with redis-cli, so the lines that choose are in each."""
    parts = {
        name: re.findall(
            r"^-- choose: .*?^-- chosen$", FILES[name].read_text("utf-8"), re.DOTALL | re.MULTILINE
        )
        for name in ("list", "show", "replay", "discard")
    }
    assert all(parts["list"] == part and len(part) == 1 for part in parts.values())

"""The Lua files through the real `redis-cli --eval`, as their headers and docs/operations.md say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.books import Book, link
from tests.support.processes import ROOT
from tests.support.servers import Server

LUA = ROOT / "ops" / "lua"
PAYLOADS = [
    b'{"text":"plain"}',
    b"line\nbreak\r\n",
    b"'single' \"double\" `back` $HOME \\ , ,",
    b"\x00NUL\x00",
    "🔥 – ü".encode(),
    b"\xff\xfe no UTF-8",
    bytes(range(256)) * 4096,  # 1 MiB
    b"",
]


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    if shutil.which("redis-cli") is None:
        (pytest.fail if "CI" in os.environ else pytest.skip)("no redis-cli on this machine")


@pytest.fixture
def pager(server: Server) -> Iterator[Book]:
    with link(server) as client:
        yield Book(client)


@pytest.fixture
def cli(server: Server) -> Callable[..., list[str]]:
    """`cli("replay", [keys], *arguments)`: the lines of the answer."""

    def run(script: str, keys: list[str], *words: str) -> list[str]:
        command = [
            "redis-cli",
            "-h",
            server.host,
            "-p",
            str(server.port),
            "--eval",
            str(LUA / f"{script}.lua"),
        ]
        done = subprocess.run(
            [*command, *keys, *([",", *words] if words else [])],
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
        return (done.stdout + done.stderr).decode("utf-8", "replace").removesuffix("\n").split("\n")

    return run


def replay_keys(book: Book) -> list[str]:
    return [book.at.stream, book.at.dead, book.at.ledger, book.at.retry]


def accept_keys(book: Book) -> list[str]:
    return [book.at.stream, book.at.retry, book.at.dead, book.at.ledger]


def gate_keys(book: Book) -> list[str]:
    return [book.at.gate, book.at.stream, book.at.retry]


def test_replay_keeps_every_byte(pager: Book, cli: Callable[..., list[str]]) -> None:
    for payload in PAYLOADS:
        pager.die(alert=payload, key=f"k:{len(payload)}")
    assert cli("replay", replay_keys(pager), "100", "100000", "") == [str(len(PAYLOADS)), "0", ""]
    entries = pager.entries()
    assert [entry[b"alert"] for entry in entries] == PAYLOADS
    assert [entry[b"key"] for entry in entries] == [f"k:{len(payload)}".encode() for payload in PAYLOADS]
    assert pager.dead() == []
    assert pager.unaccounted() == (0, 0)


def test_replay_by_id_bounded_forced(pager: Book, cli: Callable[..., list[str]]) -> None:
    ids = pager.die(6)
    assert cli("replay", replay_keys(pager), "2", "100000", "") == ["2", "0", ""]
    assert cli("replay", replay_keys(pager), "9", "100000", "force", ids[0], ids[4], ids[4]) == ["1", "2", ""]
    assert pager.entries()[2][b"force"] == b"1"
    assert cli("replay", replay_keys(pager), "9", "4", "") == ["1", "0", "full"]
    assert pager.dead() == [ids[3], ids[5]]
    assert pager.unaccounted() == (0, 0)


def test_discard(pager: Book, cli: Callable[..., list[str]]) -> None:
    ids = pager.die(4)
    keys = [pager.at.dead, pager.at.ledger, pager.at.objects]
    assert cli("discard", keys, ids[0], "1-1", ids[2], ids[0]) == ["2"]
    assert pager.unaccounted() == (0, 0)
    assert cli("discard", keys, ids[1], "nonsense")[0].startswith("ERR")
    assert pager.dead() == [ids[1], ids[3]]
    assert pager.unaccounted() == (0, 0)


def test_accept(pager: Book, cli: Callable[..., list[str]]) -> None:
    pager.wait(3)
    pager.die(2)
    pager.link.xtrim(pager.at.stream, maxlen=1, approximate=False)
    pager.link.xtrim(pager.at.dead, maxlen=1, approximate=False)
    assert cli("accept", accept_keys(pager), "1", "1") == ["2", "1", "0"]
    assert pager.unaccounted() == (2, 1)
    assert cli("accept", accept_keys(pager)) == ["2", "1", "1"]
    assert pager.unaccounted() == (0, 0)
    assert cli("accept", accept_keys(pager)) == ["0", "0", "1"]
    pager.link.xadd(pager.at.stream, {"key": "from nowhere"})
    assert cli("accept", accept_keys(pager)) == ["-1", "0", "1"]
    assert pager.unaccounted() == (0, 0)


def test_list(pager: Book, cli: Callable[..., list[str]]) -> None:
    ids = pager.die(25)
    odd = pager.die(reason="rejected", key="web1:cpu:7", error="says no")[0]
    row = f"{odd} web1:cpu:7 rejected 503 8 says no"
    assert cli("list", [pager.at.dead], "100", "-", "rejected") == ["", row]
    assert cli("list", [pager.at.dead], "100", "", "", "web1:cpu:7") == ["", row]
    told = cli("list", [pager.at.dead], "3")
    assert [told[0], *(line.split(" ")[0] for line in told[1:])] == [ids[3], *ids[:3]]
    assert cli("list", [pager.at.dead], "3", told[0])[1].startswith(ids[3])
    assert len(cli("list", [pager.at.dead], "100")) == 27


def test_list_looks_at_a_bounded_number(pager: Book, cli: Callable[..., list[str]]) -> None:
    ids = pager.die(10_020, alert=b"")
    told = cli("list", [pager.at.dead], "5", "-", "rejected")
    assert told == [f"({ids[9_999]}"]
    assert cli("list", [pager.at.dead], "5", told[0], "rejected") == [""]


def test_pause_and_resume(pager: Book, cli: Callable[..., list[str]]) -> None:
    pager.wait(2)
    before, why, depth, since = cli("pause", gate_keys(pager), "a 'reason'")
    assert (before, why, depth) == ("", "", "2")
    assert pager.link.hgetall(pager.at.gate) == {
        b"state": b"paused",
        b"reason": b"a 'reason'",
        b"opened_at": since.encode(),
    }
    assert cli("pause", gate_keys(pager)) == ["paused", "a 'reason'", "2", since]
    assert pager.link.hget(pager.at.gate, "reason") == b"a 'reason'"
    assert cli("resume", gate_keys(pager)) == ["paused", "a 'reason'", since, "2"]
    assert not pager.link.exists(pager.at.gate)
    assert cli("resume", gate_keys(pager)) == ["", "", "0", "2"]


def test_retire(pager: Book, cli: Callable[..., list[str]]) -> None:
    pager.wait(3)
    keys = [pager.at.stream, pager.at.retry, pager.at.dead, pager.at.ledger]
    assert cli("retire", keys, "dispatchers", "60000", "100", "2") == ["2", "0", ""]
    assert cli("retire", keys, "dispatchers", "60000", "2", "2") == ["0", "0", "full"]
    assert cli("retire", keys, "dispatchers", "60000", "100", "2") == ["1", "0", ""]
    assert (len(pager.entries()), len(pager.dead())) == (0, 3)
    assert pager.unaccounted() == (0, 0)


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("replay", ["1", "100", ""]),
        ("discard", ["1-1"]),
        ("accept", []),
        ("list", ["5"]),
        ("pause", []),
        ("retire", ["dispatchers", "60000", "100", "5"]),
        ("resume", []),
    ],
)
def test_wrong_keys_are_refused(
    pager: Book, cli: Callable[..., list[str]], script: str, arguments: list[str]
) -> None:
    pager.wait()
    pager.die()
    at = pager.at
    for keys in ([at.ledger, at.dead, at.stream, at.retry, at.gate], [at.stream, at.stream]):
        assert cli(script, keys, *arguments)[0].startswith("ERR usage:")
    assert (len(pager.entries()), len(pager.dead())) == (1, 1)
    assert pager.unaccounted() == (0, 0)


def test_the_queue_drains_at_maxmemory(pager: Book, server: Server, cli: Callable[..., list[str]]) -> None:
    ids = pager.die(3)
    server.cli("CONFIG", "SET", "maxmemory", "1")
    assert cli("replay", replay_keys(pager), "1", "100", "") == ["1", "0", ""]
    assert cli("discard", [pager.at.dead, pager.at.ledger, pager.at.objects], ids[1]) == ["1"]
    assert cli("pause", gate_keys(pager))[0] == ""
    server.cli("CONFIG", "SET", "maxmemory", "0")
    assert pager.unaccounted() == (0, 0)


def commands() -> list[str]:
    """Those of docs/operations.md."""
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    section = re.split(r"^## ", page.partition("## With redis-cli alone\n")[2], flags=re.MULTILINE)[0]
    return re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def shell(text: str, url: str, directory: Path) -> list[str]:
    """Run them as they stand; the lines they print."""
    environ = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "REDISPATCH_REDIS_URL": url,
    }
    done = subprocess.run(
        ["bash", "-eu", "-c", text], env=environ, cwd=directory, capture_output=True, text=True, check=False
    )
    lines = (done.stdout + done.stderr).rstrip("\n").split("\n")
    assert done.returncode == 0, lines
    wrong = [line for line in lines if re.search("ERR|NOPERM|WRONG", line)]
    assert wrong == [], lines
    return lines


def test_the_document(pager: Book, server: Server, tmp_path: Path) -> None:
    """Each command does what the page says, also for the user that it makes."""
    blocks = commands()
    assert len(blocks) == 9
    assert {path.stem for path in LUA.iterdir()} == set(re.findall(r"--eval (\w+)\.lua", "".join(blocks)))
    ids = pager.die(5)
    lines = shell("\n".join(blocks), server.url, tmp_path)
    assert lines[:3] == ["0", "0", "5"]
    assert lines[-1] == "OK"
    assert [entry[b"replay_of"].decode() for entry in pager.entries()] == ids
    assert pager.unaccounted() == (0, 0)
    try:
        server.cli("ACL", "SETUSER", "operator", "on", ">sesame")
        pager.die(5)
        as_operator = server.url.replace("://", "://operator:sesame@")
        own = [block for block in blocks if "ACL SETUSER" not in block]
        assert shell("\n".join(own), as_operator, tmp_path)[:3] == ["5", "0", "5"]
        assert len(pager.entries()) == 10
        assert pager.unaccounted() == (0, 0)
    finally:
        server.cli("ACL", "DELUSER", "operator")

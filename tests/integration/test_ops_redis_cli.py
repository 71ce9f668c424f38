"""The Lua files through the real `redis-cli --eval`, as their headers and the pages for operators say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from common import keys
from tests.rules import lua
from tests.support.books import Book, link
from tests.support.ops import Command
from tests.support.processes import ROOT
from tests.support.servers import Server, one_kind

LUA = ROOT / "ops" / "lua"
HOUR = 3_600_000
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
        command = ["redis-cli", "-h", server.host, "-p", str(server.port)]
        command += ["-c"] if server.kind == "cluster" else []
        done = subprocess.run(
            [*command, "--eval", str(LUA / f"{script}.lua"), *keys, *([",", *words] if words else [])],
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


def stats_keys(book: Book) -> list[str]:
    return [book.at.stream, book.at.retry, book.at.dead, book.at.gate]


def discard_keys(book: Book) -> list[str]:
    return [book.at.dead, book.at.ledger, book.at.objects]


def ids_of(lines: list[str]) -> list[str]:
    """Those that `list` printed, below its heading."""
    return [line.split(" ")[0] for line in lines[1:-1]]


def test_replay_keeps_every_byte(pager: Book, cli: Callable[..., list[str]]) -> None:
    for payload in PAYLOADS:
        pager.die(alert=payload, key=f"k:{len(payload)}")
    told = cli("replay", replay_keys(pager))
    assert told == [str(len(PAYLOADS)), "0", "", f"replayed {len(PAYLOADS)} dead letters"]
    entries = pager.entries()
    assert [entry[b"alert"] for entry in entries] == PAYLOADS
    assert [entry[b"key"] for entry in entries] == [f"k:{len(payload)}".encode() for payload in PAYLOADS]
    assert pager.dead() == []
    assert pager.unaccounted() == (0, 0)


def test_replay_by_id_bounded_forced(pager: Book, cli: Callable[..., list[str]]) -> None:
    ids = pager.die(6)
    told = f"replayed 2 dead letters; there may be more: again, with after={ids[1]}"
    assert cli("replay", replay_keys(pager), "limit=2") == ["2", "0", "", told]
    told = "replayed 1 dead letter, 2 of the ids are not there"
    assert cli("replay", replay_keys(pager), "force", ids[0], ids[4], ids[4]) == ["1", "2", "", told]
    assert pager.entries()[2][b"force"] == b"1"
    told = "replayed 1 dead letter; stopped, the queue is full (4)"
    assert cli("replay", replay_keys(pager), "max_depth=4") == ["1", "0", "full", told]
    assert pager.dead() == [ids[3], ids[5]]
    assert pager.unaccounted() == (0, 0)


def test_replay_counts_retries_and_keeps_objects(pager: Book, cli: Callable[..., list[str]]) -> None:
    pager.die(2, object=b"pager/o1")
    pager.link.sadd(pager.at.objects, "pager/o1")
    pager.link.zadd(pager.at.retry, {b"1-1 x": 5})
    pager.link.hincrby(pager.at.ledger, "accepted", 1)
    assert cli("replay", replay_keys(pager), "max_depth=2")[:3] == ["1", "0", "full"]
    assert [entry[b"object"] for entry in pager.entries()] == [b"pager/o1"]
    assert pager.link.scard(pager.at.objects) == 1
    assert pager.unaccounted() == (0, 0)


def test_what_is_chosen(pager: Book, cli: Callable[..., list[str]]) -> None:
    """The same words for all of them; here those of replay and discard."""
    now = pager.link.time()[0] * 1000
    old = pager.die(3, at=now - 3 * HOUR, key="web1:cpu:7")
    odd = pager.die(at=now - HOUR, reason="rejected", key="db1:disk%[x]:1")
    new = pager.die(2, at=now, key="db1:disk:1")
    given = [pager.at.dead]
    assert ids_of(cli("list", given)) == [*old, *odd, *new]
    assert ids_of(cli("list", given, "reason=rejected")) == odd
    assert ids_of(cli("list", given, "key=web1:cpu:7")) == old
    assert ids_of(cli("list", given, "key=*:disk*:?")) == [*odd, *new]
    assert ids_of(cli("list", given, "key=db1:disk%[x]:1")) == odd
    assert ids_of(cli("list", given, "key=db1")) == []
    assert ids_of(cli("list", given, "since=2h")) == [*odd, *new]
    assert ids_of(cli("list", given, "until=30m")) == [*old, *odd]
    assert ids_of(cli("list", given, f"since={now - 2 * HOUR}", f"until={now - HOUR}")) == odd
    assert ids_of(cli("list", given, new[0], old[2])) == [new[0], old[2]]
    page = cli("list", given, "limit=2")
    assert page[-1] == f"2 dead letters; there may be more: after={old[1]}"
    assert ids_of(cli("list", given, "limit=2", f"after={old[1]}")) == [old[2], *odd]
    assert cli("replay", replay_keys(pager), "key=web1:*", "limit=2")[0] == "2"
    assert cli("discard", discard_keys(pager), "limit=10", "until=30m", "reason=attempts")[0] == "1"
    assert pager.dead() == [*odd, *new]
    assert pager.unaccounted() == (0, 0)


def test_list_and_show(pager: Book, cli: Callable[..., list[str]]) -> None:
    odd = pager.die(
        reason="rejected", key="web1:cpu:7", error="says \x1b[2J\nno \xc2\x9b", alert=b"\x00\xff\n'\x1b"
    )[0]
    listed, shown = cli("list", [pager.at.dead]), cli("show", [pager.at.dead], odd)
    row = rf"{odd} +\d{{1,2}}s  rejected +503 +8  web1:cpu:7  says \\x1b\[2J\\x0ano .*"
    assert re.fullmatch(row, listed[1]), listed
    assert shown[1] == "key         web1:cpu:7"
    assert shown[-2:] == ["alert       \\x00\ufffd\\x0a'\\x1b", "1 dead letter"]
    assert not any(mark in line for line in [*listed, *shown] for mark in "\x1b\x9b\x00")
    large = pager.die(alert=b"x" * 5000)[0]
    assert cli("show", [pager.at.dead], large)[-2].endswith("x ... of 5000 bytes: whole")
    assert cli("show", [pager.at.dead], large, "whole")[-2].endswith(" " + 5000 * "x")
    assert cli("show", [pager.at.dead], "1-1") == ["0 dead letters, 1 of the ids are not there"]


def test_one_call_looks_at_a_bounded_number(pager: Book, cli: Callable[..., list[str]]) -> None:
    ids = pager.die(2_020, alert=b"")
    told = cli("list", [pager.at.dead], "reason=rejected")
    assert told[-1] == f"0 dead letters; there may be more: after={ids[1_999]}"
    assert cli("list", [pager.at.dead], f"after={ids[1_999]}", "reason=rejected")[-1] == "0 dead letters"
    told = cli("replay", replay_keys(pager), "reason=rejected")
    assert told[-1] == f"replayed 0 dead letters; there may be more: again, with after={ids[1_999]}"
    told = cli("replay", replay_keys(pager), f"after={ids[1_999]}", "reason=rejected")
    assert told[-1] == "replayed 0 dead letters"
    assert cli("replay", replay_keys(pager), "limit=99999")[0] == "2000"
    assert pager.dead() == ids[2_000:]
    assert pager.unaccounted() == (0, 0)


def test_stats(pager: Book, cli: Callable[..., list[str]]) -> None:
    empty = cli("stats", stats_keys(pager))
    assert empty[0] == "depth         0"
    assert empty[4:] == ["dead letters  0", "gate          open", "consumers     0"]
    pager.die(3)
    pager.die(2, reason="rejected")
    pager.wait(2)
    pager.link.xgroup_create(pager.at.stream, keys.GROUP, "0")
    pager.link.xreadgroup(keys.GROUP, "one", {pager.at.stream: ">"}, count=1)
    pager.link.zadd(pager.at.retry, {b"1-1 x": (pager.link.time()[0] + 500) * 1000})
    pager.link.hset(pager.at.gate, mapping={"state": "throttled", "reason": "HTTP 429\x1b", "until": "5"})
    told = cli("stats", stats_keys(pager))
    assert told[:2] == ["depth         3", "in flight     1"]
    assert re.fullmatch(r"retrying      1, the next due in (4[5-9]\d|500) s", told[2])
    assert re.fullmatch(r"oldest        \d{1,2} s", told[3])
    assert told[4:] == [
        "dead letters  5: attempts 3, rejected 2",
        "gate          throttled for 0 s (HTTP 429?)",
        "consumers     1",
    ]


def test_ledger(pager: Book, cli: Callable[..., list[str]]) -> None:
    pager.die(2)
    pager.wait(3)
    assert cli("ledger", accept_keys(pager)) == [
        "accepted 5 + replayed 0",
        "  is to be delivered 0 + duplicate 0 + superseded 0 + died 2 + lost 0 + depth 3",
        "  missing 0",
        "died 2",
        "  is to be replayed 0 + discarded 0 + dead letters 2",
        "  missing 0",
        "unaccounted 0",
    ]
    pager.link.xtrim(pager.at.stream, maxlen=1, approximate=False)
    pager.link.xadd(pager.at.dead, {"key": "from nowhere"})
    told = cli("ledger", accept_keys(pager))
    assert (told[2], told[5], told[6]) == ("  missing 2", "  missing -1", "unaccounted 3")


def test_discard(pager: Book, cli: Callable[..., list[str]]) -> None:
    ids = pager.die(4, object=b"pager/o1")
    pager.link.sadd(pager.at.objects, "pager/o1", "pager/other")
    told = cli("discard", discard_keys(pager), ids[0], "1-1", ids[2], ids[0])
    assert told == ["2", "discarded 2 dead letters, 2 of the ids are not there", "pager/o1", "pager/o1"]
    assert pager.link.smembers(pager.at.objects) == {b"pager/other"}
    assert pager.unaccounted() == (0, 0)
    assert "say how many: limit=100, or ids" in cli("discard", discard_keys(pager), "reason=attempts")[0]
    assert pager.dead() == [ids[1], ids[3]]
    assert pager.unaccounted() == (0, 0)


def test_accept(pager: Book, cli: Callable[..., list[str]]) -> None:
    pager.wait(3)
    pager.die(2)
    pager.link.xtrim(pager.at.stream, maxlen=1, approximate=False)
    pager.link.xtrim(pager.at.dead, maxlen=1, approximate=False)
    told = "nothing was booked: 2 as lost, 1 as discarded"
    assert cli("accept", accept_keys(pager), "1", "1") == ["2", "1", "0", told]
    assert pager.unaccounted() == (2, 1)
    assert cli("accept", accept_keys(pager)) == ["2", "1", "1", "booked 2 as lost, 1 as discarded"]
    assert pager.unaccounted() == (0, 0)
    assert cli("accept", accept_keys(pager))[:3] == ["0", "0", "1"]
    pager.link.xadd(pager.at.stream, {"key": "from nowhere"})
    assert cli("accept", accept_keys(pager))[:3] == ["-1", "0", "1"]
    assert pager.unaccounted() == (0, 0)


def test_pause_and_resume(pager: Book, cli: Callable[..., list[str]]) -> None:
    pager.wait(2)
    before, why, depth, since, told = cli("pause", gate_keys(pager), "a 'reason'")
    assert (before, why, depth, told) == ("", "", "2", "it is paused, until resume; 2 wait")
    assert pager.link.hgetall(pager.at.gate) == {
        b"state": b"paused",
        b"reason": b"a 'reason'",
        b"opened_at": since.encode(),
    }
    assert cli("pause", gate_keys(pager))[:4] == ["paused", "a 'reason'", "2", since]
    assert pager.link.hget(pager.at.gate, "reason") == b"a 'reason'"
    assert cli("resume", gate_keys(pager)) == ["paused", "a 'reason'", since, "2", "it is open; 2 wait"]
    assert not pager.link.exists(pager.at.gate)
    assert cli("resume", gate_keys(pager))[:4] == ["", "", "0", "2"]


def test_retire(pager: Book, cli: Callable[..., list[str]]) -> None:
    pager.wait(3)
    given = accept_keys(pager)
    told = "moved 2 to the dead letters, left 0 that are in work"
    assert cli("retire", given, "dispatchers", "60000", "100", "2") == ["2", "0", "", told]
    assert cli("retire", given, "dispatchers", "60000", "2", "2")[:3] == ["0", "0", "full"]
    assert cli("retire", given, "dispatchers", "60000", "100", "2")[:3] == ["1", "0", ""]
    assert (len(pager.entries()), len(pager.dead())) == (0, 3)
    assert pager.unaccounted() == (0, 0)


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("replay", ["limit=1"]),
        ("discard", ["1-1"]),
        ("accept", []),
        ("list", ["limit=5"]),
        ("show", []),
        ("stats", []),
        ("ledger", []),
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
    for given in ([at.ledger, at.dead, at.stream, at.retry, at.gate], [at.stream, at.stream]):
        told = cli(script, given, *arguments)[0]
        assert told.startswith("ERR ")
        assert f"usage: redis-cli --eval {script}.lua '{{redispatch:pager}}:" in told
    assert (len(pager.entries()), len(pager.dead())) == (1, 1)
    assert pager.unaccounted() == (0, 0)


@pytest.mark.parametrize(
    ("script", "words", "why"),
    [
        ("list", ["reson=x"], "what is reson=x?"),
        ("list", ["limit=0"], "that is no limit=0"),
        ("list", ["force"], "what is force?"),
        ("list", ["max_depth=3"], "what is max_depth=3?"),
        ("show", ["since=yesterday"], "that is no since=yesterday"),
        ("replay", ["after=1"], "that is no after=1"),
        ("replay", ["100", "100000", ""], "what is 100?"),
        ("discard", ["1-1", "reason=attempts"], "either ids or what they have to be like"),
        ("discard", [], "say how many"),
    ],
)
@one_kind
def test_wrong_words_are_refused(
    pager: Book, cli: Callable[..., list[str]], script: str, words: list[str], why: str
) -> None:
    pager.die()
    given = {"replay": replay_keys(pager), "discard": discard_keys(pager)}.get(script, [pager.at.dead])
    assert cli(script, given, *words)[0].startswith(f"ERR {why}")
    assert len(pager.dead()) == 1


def test_the_queue_drains_at_maxmemory(pager: Book, server: Server, cli: Callable[..., list[str]]) -> None:
    ids = pager.die(3)
    server.cli("CONFIG", "SET", "maxmemory", "1")
    assert cli("replay", replay_keys(pager), "limit=1")[0] == "1"
    assert cli("discard", discard_keys(pager), ids[1])[0] == "1"
    assert cli("pause", gate_keys(pager))[0] == ""
    server.cli("CONFIG", "SET", "maxmemory", "0")
    assert pager.unaccounted() == (0, 0)


def blocks(page: str) -> list[str]:
    """Those of a page for operators that are about redis-cli."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    section = re.split(r"^## ", text.partition("## With redis-cli alone\n")[2], flags=re.MULTILINE)[0]
    return re.findall(r"^```sh\n(.*?)^```$", section or text, re.DOTALL | re.MULTILINE)


def shell(text: str, url: str, directory: Path) -> list[str]:
    """Run them as they stand; the lines they print."""
    environ = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "REDISPATCH_REDIS_URL": url,
        "LUA": str(LUA),
    }
    done = subprocess.run(
        ["sh", "-eu", "-c", text], env=environ, cwd=directory, capture_output=True, text=True, check=False
    )
    lines = (done.stdout + done.stderr).rstrip("\n").split("\n")
    assert done.returncode == 0, lines
    wrong = [line for line in lines if re.search("ERR|NOPERM|WRONG", line)]
    assert wrong == [], lines
    return lines


@pytest.fixture
def operators(server: Server) -> Iterator[Callable[[str], str]]:
    """`operators("watcher")`: the address for the user that the page makes."""
    lines = [line for line in "".join(blocks("operations.md")).split("\n") if " ACL SETUSER " in line]
    for line in lines:
        words = shlex.split(line.partition(" ACL ")[2])
        server.cli("ACL", *words, "on", ">sesame")
    yield lambda name: server.url.replace("://", f"://{name}:sesame@")
    server.cli("ACL", "DELUSER", "watcher", "operator")


def test_the_page(pager: Book, server: Server, tmp_path: Path, operators: Callable[[str], str]) -> None:
    """Each command does what the page says, for the user who is meant for it."""
    page = [block for block in blocks("operations.md") if "ACL SETUSER" not in block]
    assert {path.stem for path in LUA.iterdir()} == set(re.findall(r"--eval (\w+)\.lua", "".join(page)))
    ids = pager.die(5)
    looking = [block for block in page if not re.search("pause|replay|retire|discard|accept", block)]
    assert "unaccounted 0" in shell("".join(looking), operators("watcher"), tmp_path)
    lines = shell("".join(page), operators("operator"), tmp_path)
    assert lines[:2] == ["pager", "depth         0"]
    assert [entry[b"replay_of"].decode() for entry in pager.entries()] == ids
    assert pager.unaccounted() == (0, 0)


def test_the_drill(pager: Book, server: Server, tmp_path: Path) -> None:
    """From top to bottom: all is sent again, the ledger is 0, nothing else is touched."""
    ids = pager.die(5)
    chat = Book(pager.link, "chat")
    chat.die(3)
    lines = shell("".join(blocks("drill.md")), server.url, tmp_path)
    assert lines[0] == "PONG"
    assert "dead letters  5: attempts 5" in lines
    assert lines[-1] == "unaccounted 0"
    assert [entry[b"replay_of"].decode() for entry in pager.entries()] == ids
    assert pager.unaccounted() == (0, 0)
    assert len(chat.dead()) == 3


def test_the_users_may_do_nothing_else(pager: Book, server: Server, operators: Callable[[str], str]) -> None:
    pager.die()
    at = pager.at
    for name in ("watcher", "operator"):
        user = redis.Redis.from_url(operators(name), protocol=2)
        forbidden: list[tuple[str, ...]] = [
            *((word,) for word in ("FLUSHALL", "FLUSHDB", "SHUTDOWN", "SAVE", "INFO", "MONITOR")),
            ("CONFIG", "GET", "*"),
            ("KEYS", "*"),
            ("XLEN", "other"),
            ("HMGET", "{other:pager}:ledger", "x"),
            ("XTRIM", at.dead, "MAXLEN", "0"),
            ("XGROUP", "DESTROY", at.stream, keys.GROUP),
            ("EVAL", "return 1", "1", "other"),
            ("EVAL", "return redis.call('XTRIM', KEYS[1], 'MAXLEN', 0)", "1", at.dead),
            ("EVAL", "return redis.call('XLEN', 'other')", "0"),
        ]
        if name == "watcher":
            forbidden += [("DEL", at.dead), ("XDEL", at.dead, "1-1"), ("SET", at.record("k"), "x")]
        for words in forbidden:
            with pytest.raises(
                (redis.exceptions.NoPermissionError, redis.ResponseError),
                match=r"permission|ACL|user executing",
            ):
                user.execute_command(*words)
        user.close()
    assert len(pager.dead()) == 1


def test_the_users_may_do_what_the_scripts_do() -> None:
    """Exactly: no command more than the Lua files and the page use."""
    lines = [line for line in "".join(blocks("operations.md")).split("\n") if " ACL SETUSER " in line]
    granted = [set(re.findall(r"\+([\w|]+)", line)) for line in lines]
    typed = {"eval", "smembers", "xrange"}
    looking = {"list", "show", "stats", "ledger"}
    for names, may in zip((looking, {path.stem for path in LUA.iterdir()}), granted, strict=True):
        texts = [(LUA / f"{name}.lua").read_text("utf-8") for name in names]
        used = {call.command.lower() for text in texts for call in lua.calls(text)}
        assert {name.replace("xinfo", "xinfo|groups") for name in used} | typed == may


@one_kind
def test_the_command_of_an_operator(
    pager: Book, server: Server, tmp_path: Path, operators: Callable[[str], str]
) -> None:
    """With what the page adds for it, the Python command works, too."""
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    more = re.search(r"beside what `operator` may, `([+\w ]+)`", page)
    assert more is not None
    server.cli("ACL", "SETUSER", "operator", *more[1].split())
    redispatch = Command(tmp_path, server)
    redispatch.sections["redis"]["url"] = operators("operator")
    pager.die(3)
    assert redispatch.json("status")["destinations"][0]["dead_letters"] == 3
    assert len(redispatch.json("dead", "list", "--key", "db1:*")) == 3
    redispatch("pause", "pager")
    redispatch("resume", "pager")
    redispatch("dead", "replay", "--limit", "2")
    redispatch("dead", "discard", "--yes")
    redispatch("ledger")
    Book(pager.link, "old").wait(2)
    redispatch("retire", "old", "--yes")
    assert len(pager.entries()) == 2
    assert pager.unaccounted() == (0, 0)

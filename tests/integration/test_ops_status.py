"""`redispatch status`, `pause`, `resume` and `ledger` against real servers."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common import keys
from tests.support.books import Book, link
from tests.support.fleet import eventually
from tests.support.ops import Command, drained
from tests.support.processes import ROOT, Processes
from tests.support.servers import Server, free_port, one_kind

LEDGER = "destination accepted replayed delivered duplicate superseded died discarded lost unaccounted"
ROWS = (ROOT / "docs" / "commands.md").read_text("utf-8").partition("`--json` prints")[2].split("\n")
ZERO = dict.fromkeys(LEDGER.split()[1:], 0)


@pytest.fixture
def redispatch(tmp_path: Path, server: Server) -> Command:
    return Command(tmp_path, server)


@pytest.fixture
def pager(server: Server) -> Iterator[Book]:
    with link(server) as client:
        yield Book(client)


def test_status_of_an_empty_server(redispatch: Command, server: Server) -> None:
    told = redispatch.json("status")
    assert told["redis"] == {"url": server.url}
    assert [one["name"] for one in told["destinations"]] == ["pager", "chat"]
    assert told["destinations"][0] == {
        "name": "pager",
        "depth": 0,
        "in_flight": 0,
        "retrying": 0,
        "dead_letters": 0,
        "oldest_age_seconds": None,
        "gate": {"state": "open", "reason": None, "until": None},
        "consumers": 0,
        "removed": False,
    }
    assert told["ledger"] == [{"destination": name, **ZERO} for name in ("pager", "chat")]
    assert set(told) == {"redis", "destinations", "ledger"}


def test_status_counts(redispatch: Command, pager: Book) -> None:
    pager.die(2)
    pager.wait(3)
    pager.link.xgroup_create(pager.at.stream, keys.GROUP, "0")
    pager.link.xreadgroup(keys.GROUP, "one", {pager.at.stream: ">"}, count=1)
    pager.link.zadd(pager.at.retry, {b"1-1 x": 5})
    pager.link.hset(pager.at.gate, mapping={"state": "throttled", "reason": "429", "until": "1764438120042"})
    told = redispatch.json("status")
    one, book = told["destinations"][0], told["ledger"][0]
    assert one["oldest_age_seconds"] >= 0
    assert {name: one[name] for name in ("depth", "in_flight", "retrying", "dead_letters", "consumers")} == {
        "depth": 4,
        "in_flight": 1,
        "retrying": 1,
        "dead_letters": 2,
        "consumers": 1,
    }
    assert one["gate"] == {"state": "throttled", "reason": "429", "until": "2025-11-29T17:42:00.042Z"}
    assert book == {"destination": "pager", **ZERO, "accepted": 5, "died": 2, "unaccounted": 1}


def test_status_shows_what_left_the_file(redispatch: Command, pager: Book) -> None:
    Book(pager.link, "old").wait(2)
    told = redispatch.json("status")
    assert [(one["name"], one["removed"]) for one in told["destinations"]] == [
        ("pager", False),
        ("chat", False),
        ("old", True),
    ]
    assert told["destinations"][2]["depth"] == 2
    shown = redispatch("status").output
    assert "old (removed)" in shown
    assert "old is not in the configuration: 2 deliveries wait, and nobody sends them" in shown


def test_tables_fit(tmp_path: Path, valkey: Server) -> None:
    long = "a-destination-with-a-name-that-is-as-long-as-a-name-may-be-0123"
    redispatch = Command(tmp_path, valkey, ("pager", long))
    with link(valkey) as client:
        for name in ("pager", long):
            book = Book(client, name)
            book.die(3)
            client.hset(book.at.ledger, mapping=dict.fromkeys(LEDGER.split()[1:-1], 1234567))
    redispatch("pause", long)
    for words in (["status"], ["dead", "list"]):
        lines = redispatch(*words).output.split("\n")
        assert [line for line in lines if len(line) > 80] == []
    assert "1234567" in redispatch("status").output
    assert "1234567" in redispatch("ledger", code=1).output


def test_password_is_masked(redispatch: Command, server: Server) -> None:
    server.cli("ACL", "SETUSER", "ops", "on", ">sesame", "~*", "+@all")
    try:
        url = server.url.replace("://", "://ops:sesame@")
        redispatch.sections["redis"]["url"] = url
        assert redispatch.json("status")["redis"]["url"] == server.url.replace("://", "://ops:***@")
        assert "sesame" not in redispatch("status").output
        redispatch.sections["redis"]["url"] = url.replace("sesame", "guessed")
        refused = redispatch("status", code=1).output
        assert "refuses user or password" in refused
        assert "guessed" not in refused
    finally:
        server.cli("ACL", "DELUSER", "ops")


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["status", "--json"],
        ["status", "--watch"],
        ["ledger"],
        ["ledger", "accept", "pager"],
        ["dead", "list"],
        ["dead", "show"],
        ["dead", "replay"],
        ["dead", "discard", "--yes"],
        ["dead", "export"],
        ["pause", "pager"],
        ["resume", "pager"],
    ],
)
def test_without_a_server_it_is_one_line(tmp_path: Path, valkey: Server, words: list[str]) -> None:
    redispatch = Command(tmp_path, valkey)
    redispatch.sections["redis"]["url"] = f"redis://:sesame@127.0.0.1:{free_port()}/0"
    lines = redispatch(*words, code=1).output.strip().split("\n")
    assert len(lines) == 1
    assert "can't be reached (connection refused): is it running?" in lines[0]
    assert "sesame" not in lines[0]


def test_a_server_that_may_evict_is_refused(redispatch: Command, server: Server) -> None:
    server.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    assert "may evict alerts" in redispatch("status", code=1).output


def test_watch_goes_on_until_interrupted(tmp_path: Path, valkey: Server) -> None:
    redispatch = Command(tmp_path, valkey)
    redispatch("status")  # writes the configuration
    master, slave = pty.openpty()
    words = [sys.executable, "-m", "ops", "status", "--watch", "--config", str(redispatch.config)]
    environ = {**os.environ, "COLUMNS": "80", "LINES": "40", "TERM": "xterm"}
    with subprocess.Popen(words, cwd=ROOT, stdin=slave, stdout=slave, stderr=slave, env=environ) as process:
        os.close(slave)
        shown = b""
        while shown.count(b"destination") < 6:  # two tables, three times
            shown += os.read(master, 65536)
        process.send_signal(signal.SIGINT)
        shown += drained(master)
        assert process.wait(20) == 0, shown
    assert b"Traceback" not in shown
    assert b"second" in shown


async def test_watch_as_json_goes_on_while_redis_is_away(
    tmp_path: Path, new_server: Callable[..., Server], processes: Processes
) -> None:
    server = new_server("valkey")
    redispatch = Command(tmp_path, server)
    redispatch.config.write_text(json.dumps(redispatch.sections))
    process = await processes.redispatch("status", "--watch", "--json", config=redispatch.config)
    first = json.loads(await process.wait_line("destinations"))
    assert set(first["destinations"][0]) >= {"name", "depth", "rate"}
    server.kill()
    await process.wait_line("can't be reached")
    server.restart()
    seen = len(process.out)
    await eventually(lambda: len(process.out) > seen + 1, "two more looks")
    process.signal(signal.SIGINT)
    assert await process.wait_exit() == 0
    process.assert_no_traceback()


async def test_watch_without_a_terminal(tmp_path: Path, valkey: Server, processes: Processes) -> None:
    redispatch = Command(tmp_path, valkey)
    redispatch.config.write_text(json.dumps(redispatch.sections))
    process = await processes.redispatch("status", "--watch", config=redispatch.config)
    await eventually(lambda: "\n".join(process.out).count("pager ") >= 4, "two tables, twice")
    process.signal(signal.SIGINT)
    assert await process.wait_exit() == 0
    assert "\x1b" not in process.text
    assert max(map(len, process.out)) <= 80


def test_what_was_done_as_json(redispatch: Command, pager: Book) -> None:
    pager.wait(2)
    now = {"destination": "pager", "depth": 2}
    before = {"state": "open", "reason": None}
    assert redispatch.json("pause", "pager", "--reason", "moving") == {
        **now,
        "state": "paused",
        "before": before,
    }
    before = {"state": "paused", "reason": "moving"}
    assert redispatch.json("pause", "pager") == {**now, "state": "paused", "before": before}
    assert redispatch.json("resume", "pager") == {**now, "state": "open", "before": before}
    pager.link.xtrim(pager.at.stream, maxlen=1, approximate=False)
    told = json.loads(redispatch("ledger", "accept", "pager", "--yes", "--json").stdout)
    assert told == {"destination": "pager", "lost": 1, "discarded": 0}
    assert redispatch.json("ledger", "accept", "pager")["lost"] == 0
    Book(pager.link, "old").wait(2)
    told = redispatch.json("retire", "old", "--yes")
    assert told == {"destination": "old", "moved": 2, "left": 0, "full": False, "interrupted": False}


@one_kind
def test_documents_are_those_of_the_page(redispatch: Command, pager: Book) -> None:
    pager.die(3)
    Book(pager.link, "old")
    redispatch.sections["routes"] = [{"to": ["pager"]}]  # a warning: nothing leads to chat
    for words, rows in (
        (["check"], ["check"]),
        (["status"], ["status", "ledger"]),
        (["ledger"], ["ledger"]),
        (["ledger", "accept", "pager"], ["ledger accept"]),
        (["dead", "show"], ["dead show"]),
        (["dead", "replay", "--limit", "1"], ["dead replay"]),
        (["pause", "pager"], ["pause"]),
        (["retire", "old"], ["retire"]),
    ):
        text = "".join(row for row in ROWS for name in rows if row.startswith(f"| `{name}`"))
        told = {word for shape in re.findall(r"`(\{.*?\})`", text) for word in re.findall(r"\w+", shape)}
        assert told == set(names(redispatch.json(*words))), words


def names(document: object) -> Iterator[str]:
    """Of all members, but for those of an alert."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name != "alert":
                yield name
                yield from names(value)
    elif isinstance(document, list):
        for each in document:
            yield from names(each)


def test_pause_and_resume(redispatch: Command, pager: Book) -> None:
    pager.wait(2)
    assert redispatch("pause", "pager", "--reason", "moving").output.split("\n")[:2] == [
        "pager is paused: 2 deliveries wait",
        "max_age still counts: what gets too old while it waits becomes a dead letter",
    ]
    gate = pager.link.hgetall(pager.at.gate)
    assert gate[b"state"] == b"paused"
    assert gate[b"reason"] == b"moving"
    assert abs(int(gate[b"opened_at"]) / 1000 - pager.link.time()[0]) < 60
    assert pager.link.ttl(pager.at.gate) == -1
    assert redispatch.json("status")["destinations"][0]["gate"]["state"] == "paused"
    assert "pager is paused since 20" in redispatch("status").output

    again = redispatch("pause", "pager").output
    assert re.match(r"pager was paused, since 20\S+ \(moving\) already: 2 deliveries wait\n", again)
    assert pager.link.hgetall(pager.at.gate) == gate
    redispatch("pause", "pager", "--reason", "still moving")
    assert pager.link.hgetall(pager.at.gate) == {**gate, b"reason": b"still moving"}

    told = redispatch("resume", "pager").output
    assert re.fullmatch(
        r"pager is open again \(it was paused since 20\S+Z \(still moving\)\): 2 deliveries wait\n", told
    )
    assert not pager.link.exists(pager.at.gate)
    assert redispatch("resume", "pager").output == "pager was open: 2 deliveries wait\n"


def test_pause_replaces_what_else_closed_the_gate(redispatch: Command, pager: Book) -> None:
    pager.link.hset(pager.at.gate, mapping={"state": "breaker", "until": "5", "failures": "10"})
    assert "its gate was closed before: breaker" in redispatch("pause", "pager").output
    assert set(pager.link.hgetall(pager.at.gate)) == {b"state", b"reason", b"opened_at"}


def test_pause_leaves_what_is_gone(redispatch: Command, pager: Book) -> None:
    gone = {"state": "gone", "reason": "HTTP 410", "opened_at": "1764438120042"}
    pager.link.hset(pager.at.gate, mapping=gone)
    assert redispatch("pause", "pager", "--reason", "moving").output.split("\n")[0] == (
        "pager stays gone, since 2025-11-29T17:42:00.042Z (HTTP 410): nothing is sent until resume, "
        "0 deliveries wait"
    )
    assert pager.link.hgetall(pager.at.gate) == {k.encode(): v.encode() for k, v in gone.items()}


@pytest.mark.parametrize(
    "command", [["pause"], ["resume"], ["retire"], ["ledger", "accept"], ["dead", "list", "-d"]]
)
def test_unknown_destination(redispatch: Command, pager: Book, command: list[str]) -> None:
    Book(pager.link, "old")
    said = redispatch(*command, "pagr", code=1).output
    assert said == "Error: no destination 'pagr'; there are: pager, chat, old (removed)\n"


def test_ledger(redispatch: Command, pager: Book) -> None:
    pager.die(2)
    assert "unac-" in redispatch("ledger").output
    assert redispatch.json("ledger")["ledger"][0] == {
        "destination": "pager",
        **ZERO,
        "accepted": 2,
        "died": 2,
    }
    pager.wait(3)
    pager.link.xtrim(pager.at.stream, maxlen=1, approximate=False)
    pager.link.xtrim(pager.at.dead, maxlen=1, approximate=False)
    assert redispatch.json("ledger", code=1)["ledger"][0]["unaccounted"] == 3
    said = redispatch("ledger", code=1).output
    assert "+ lost 0 + depth 1: 2 deliveries missing" in said
    assert "dead letters 1: 1 dead letter missing" in said


def test_accept_wants_an_answer(redispatch: Command, pager: Book) -> None:
    pager.link.hincrby(pager.at.ledger, "accepted", 1)
    assert "say --yes" in redispatch("ledger", "accept", "pager", code=1).output
    assert pager.unaccounted() == (1, 0)
    assert redispatch("ledger", "accept", "chat").output == "the ledger of chat balances: nothing to book\n"


async def test_accept_books_and_says_so(processes: Processes, valkey: Server, tmp_path: Path) -> None:
    redispatch = Command(tmp_path, valkey)
    redispatch.config.write_text(json.dumps(redispatch.sections))
    with link(valkey) as client:
        pager = Book(client)
        pager.wait(3)
        pager.die(2)
        client.xtrim(pager.at.stream, maxlen=1, approximate=False)
        client.xtrim(pager.at.dead, maxlen=1, approximate=False)
        assert pager.unaccounted() == (2, 1)
        process = await processes.redispatch("ledger", "accept", "pager", "--yes", config=redispatch.config)
        assert await process.wait_exit() == 0, process.text
        assert process.out == ["booked for pager: 2 as lost, 1 as discarded"]
        audit = json.loads(process.err[-1])
        assert audit["event"] == "ledger_accepted"
        assert (audit["destination"], audit["lost"], audit["discarded"]) == ("pager", 2, 1)
        assert audit["user"]
        assert pager.unaccounted() == (0, 0)
        assert (pager.counter("lost"), pager.counter("discarded")) == (2, 1)

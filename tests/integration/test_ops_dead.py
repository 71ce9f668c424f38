"""`redispatch dead` against real servers: what it finds, moves, refuses; the ledger stays exact."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from common.objects import Objects
from ops import move
from ops.filters import Chosen
from tests.support.books import AT, Book, link
from tests.support.fleet import eventually
from tests.support.ops import Command, drained
from tests.support.processes import ROOT, Processes
from tests.support.servers import Server

HOUR = 3_600_000
NOWHERE = Objects("memory://", "redispatch")
Connected = Callable[[Server | str], Redis]


@pytest.fixture
def redispatch(tmp_path: Path, server: Server) -> Command:
    return Command(tmp_path, server)


@pytest.fixture
def pager(server: Server) -> Iterator[Book]:
    with link(server) as client:
        yield Book(client)


@pytest.fixture
def chat(pager: Book) -> Book:
    return Book(pager.link, "chat")


def found(redispatch: Command, *words: str) -> list[str]:
    return [letter["id"] for letter in redispatch.json("dead", "list", *words)]


def test_list(redispatch: Command, pager: Book, chat: Book) -> None:
    first, second = pager.die(2, at=AT)
    third = chat.die(at=AT + HOUR, reason="rejected", key="web1:cpu:7", status="404")[0]
    assert redispatch.json("dead", "list")[0] == {
        "destination": "pager",
        "id": first,
        "key": "db1:disk:1",
        "reason": "attempts",
        "error": "HTTP 503",
        "status": 503,
        "attempts": 8,
        "deliveries": 8,
        "first_at": "2025-11-29T17:42:00.042Z",
        "died_at": "2025-11-29T17:42:00.042Z",
    }
    assert found(redispatch) == [first, second, third]
    assert found(redispatch, "--limit", "1") == [first]
    assert found(redispatch, "--destination", "chat") == [third]
    assert found(redispatch, "-d", "chat", "-d", "pager", "--limit", "2") == [third, first]
    assert found(redispatch, "--reason", "rejected", "--reason", "max_age") == [third]
    assert found(redispatch, "--key", "web1:cpu:7") == [third]
    assert found(redispatch, "--key", "web1:*") == [third]
    assert found(redispatch, "--key", "web1") == []
    assert found(redispatch, "--since", "2025-11-29T19:00:00+01:00") == [third]
    assert found(redispatch, "--until", "2025-11-29T18:00:00Z") == [first, second]
    assert found(redispatch, "--until", "2025-11-29T17:42:00.042Z") == [first, second]
    assert found(redispatch, "--since", "1h") == []
    shown = redispatch("dead", "list", "--limit", "2").output
    assert first in shown
    assert "attempts 503" in shown
    assert "2 are shown, there may be more: --limit" in shown
    assert redispatch("dead", "list", "--reason", "render").output == "no dead letter matches\n"


def test_since_means_ago(redispatch: Command, pager: Book) -> None:
    now = pager.link.time()[0] * 1000
    pager.die(at=now - 3 * HOUR)
    recent = pager.die(at=now - HOUR)
    assert found(redispatch, "--since", "2h") == recent
    assert len(found(redispatch, "--until", "2h")) == 1


def test_hostile_texts_stay_texts(redispatch: Command, pager: Book) -> None:
    pager.die(key="[red]x[/red]", error="a\x1b[2Jb\nforged: line", alert=b"\x1b]0;t\x07 no JSON")
    listed, shown = redispatch("dead", "list").output, redispatch("dead", "show").output
    assert "[red]x[/red]" in listed
    assert "\x1b" not in listed + shown
    assert "\x07" not in shown
    assert "a\\x1b[2Jb\\nforged: line" in shown


def test_show(redispatch: Command, pager: Book, chat: Book) -> None:
    first, second = pager.die(2, at=AT)
    lines = redispatch("dead", "show", first).output.split("\n")
    assert "destination  pager" in lines
    assert f"id           {first}" in lines
    assert '      "host": "db1",' in lines
    told = redispatch.json("dead", "show", second)
    assert [one["id"] for one in told] == [second]
    assert told[0]["alert"]["name"] == "disk"
    assert redispatch("dead", "show", "1-1", code=1).output == "Error: no dead letter matches\n"


@pytest.mark.parametrize(
    "words",
    [
        ["list", "--reason", "old age"],
        ["show", "yesterday"],
        ["show", "12"],
        ["list", "--since", "yesterday"],
        ["list", "--since", "2026-01-31T09:00:00"],
        ["list", "--limit", "0"],
        ["list", "--limit", "10001"],
        ["replay", "--rate", "0"],
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, valkey: Server, words: list[str]) -> None:
    said = Command(tmp_path, valkey)("dead", *words, code=2).output
    assert "Invalid value for" in said
    if "--reason" in words:
        assert "attempts" in said
        assert "removed" in said


def test_export_keeps_every_byte(redispatch: Command, pager: Book, tmp_path: Path) -> None:
    alerts = [
        b'{"value":12345678901234567890,"a":[],"t":1.0}',
        b'{"a":\r\n "line\\nbreak"}',
        'no JSON: "quoted" \n 🔥'.encode(),
        b"\x00\xff\xfe",
        b"1" + b"0" * 400,
    ]
    for alert in alerts:
        pager.die(alert=alert)
    lines = redispatch("dead", "export").stdout_bytes.splitlines()
    assert len(lines) == len(alerts)
    assert b'"alert":' + alerts[0] in lines[0]
    assert json.loads(lines[1])["alert"] == {"a": "line\nbreak"}
    assert json.loads(lines[2])["alert"] == alerts[2].decode()
    assert base64.b64decode(json.loads(lines[3])["alert_base64"]) == alerts[3]
    said = redispatch("dead", "export", "--output", str(tmp_path / "x"), "--limit", "2")
    assert said.stderr == "2 dead letters exported\n"
    assert (tmp_path / "x").read_bytes().splitlines() == lines[:2]
    assert len(pager.dead()) == len(alerts)
    assert "no such file" in redispatch("dead", "export", "-o", str(tmp_path / "no" / "x"), code=1).output


def test_replay_all(redispatch: Command, pager: Book, chat: Book) -> None:
    ids = pager.die(250, alert=b"\x00\xff\n'\"\xf0\x9f\x94\xa5")
    chat.die(3)
    said = redispatch("dead", "replay")
    assert said.stdout == "replayed 253 dead letters (pager 250, chat 3)\n"
    entries = pager.entries()
    assert [entry[b"replay_of"].decode() for entry in entries] == ids
    assert set(entries[0]) == {b"key", b"alert", b"attempt", b"first_at", b"replay_of"}
    assert entries[0][b"alert"] == b"\x00\xff\n'\"\xf0\x9f\x94\xa5"
    assert entries[0][b"attempt"] == b"0"
    assert int(entries[0][b"first_at"]) > AT
    for book in (pager, chat):
        assert book.unaccounted() == (0, 0)
        assert book.dead() == []
    assert redispatch("dead", "replay").stdout == "no dead letter matches\n"


def test_replay_some(redispatch: Command, pager: Book, chat: Book) -> None:
    ids = pager.die(10)
    wanted = pager.die(5, reason="rejected")
    chat.die(5, reason="rejected")
    told = redispatch.json("dead", "replay", "--reason", "rejected", "--limit", "7", "--force")
    assert told == {
        "dry_run": False,
        "interrupted": False,
        "matched": 7,
        "replayed": 7,
        "destinations": [
            {"name": "pager", "matched": 5, "replayed": 5, "gone": 0, "full": False},
            {"name": "chat", "matched": 2, "replayed": 2, "gone": 0, "full": False},
        ],
    }
    assert [entry[b"replay_of"].decode() for entry in pager.entries()] == wanted
    assert {entry[b"force"] for entry in pager.entries()} == {b"1"}
    redispatch("dead", "replay", "--destination", "pager", ids[3], ids[5], ids[3])
    assert pager.dead() == [*ids[:3], ids[4], *ids[6:]]
    assert pager.unaccounted() == (0, 0)
    assert chat.unaccounted() == (0, 0)


def test_dry_runs_change_nothing(redispatch: Command, pager: Book, chat: Book) -> None:
    pager.die(3)
    chat.die(1)
    assert (
        redispatch("dead", "replay", "--dry-run").stdout == "would replay 4 dead letters (pager 3, chat 1)\n"
    )
    said = redispatch("dead", "discard", "--dry-run", "--limit", "3").stdout
    assert said == "would discard 3 dead letters (pager 3)\n"
    assert redispatch.json("dead", "replay", "--dry-run")["matched"] == 4
    assert len(pager.dead() + chat.dead()) == 4


def test_replay_stops_at_the_cap(redispatch: Command, pager: Book, chat: Book) -> None:
    redispatch.sections["queue"] = {"max_depth": 130}
    pager.wait(5)
    pager.die(200)
    chat.die(3)
    said = redispatch("dead", "replay", code=1)
    assert said.stdout == "replayed 128 dead letters (pager 125, chat 3)\n"
    assert said.stderr == "pager: stopped, its queue is full (130); run it again when it has drained\n"
    assert len(pager.entries()) == 130
    assert pager.unaccounted() == (0, 0)
    told = redispatch.json("dead", "replay", code=1)["destinations"][0]
    assert told == {"name": "pager", "matched": 75, "replayed": 0, "gone": 0, "full": True}


def test_replay_leaves_what_nobody_reads(redispatch: Command, pager: Book) -> None:
    old = Book(pager.link, "old")
    old.die()
    said = redispatch("dead", "replay")
    assert said.stderr == "left out, since not in the configuration: old\n"
    assert "nobody would deliver" in redispatch("dead", "replay", "-d", "old", code=1).output
    assert len(found(redispatch, "-d", "old")) == 1
    assert redispatch("dead", "discard", "-d", "old", "--yes").output == "discarded 1 dead letter (old 1)\n"


def test_discard(redispatch: Command, pager: Book, chat: Book) -> None:
    ids = pager.die(230)
    chat.die(2, at=AT)  # long ago: an id that pager has not, too
    refused = redispatch("dead", "discard", code=1).output
    assert refused.startswith("Error: Discard 232 dead letters (pager 230, chat 2)?")
    assert "--yes" in refused
    assert len(pager.dead()) == 230
    said = redispatch("dead", "discard", "--yes", "--limit", "220").output
    assert said == "discarded 220 dead letters (pager 220)\n"
    assert pager.dead() == ids[220:]
    assert (
        redispatch("dead", "discard", "--yes", ids[225], "1-1").output
        == "discarded 1 dead letter (pager 1)\n"
    )
    assert pager.counter("discarded") == 221
    assert pager.unaccounted() == (0, 0)


@pytest.mark.parametrize(("answer", "code", "left"), [(b"y\n", 0, 0), (b"n\n", 1, 2)])
def test_discard_asks(tmp_path: Path, valkey: Server, answer: bytes, code: int, left: int) -> None:
    redispatch = Command(tmp_path, valkey)
    redispatch("status")  # writes the configuration
    with link(valkey) as client:
        pager = Book(client)
        pager.die(2)
        master, slave = pty.openpty()
        words = [sys.executable, "-m", "ops", "dead", "discard", "--config", str(redispatch.config)]
        with subprocess.Popen(words, cwd=ROOT, stdin=slave, stdout=slave, stderr=slave) as process:
            os.close(slave)
            asked = b""
            while b"[y/N]:" not in asked:
                asked += os.read(master, 4096)
            os.write(master, answer)
            assert process.wait(20) == code
        os.close(master)
        assert b"Discard 2 dead letters (pager 2)?" in asked
        assert len(pager.dead()) == left
        assert pager.unaccounted() == (0, 0)


async def test_interrupted_replay_is_run_again(tmp_path: Path, valkey: Server, processes: Processes) -> None:
    redispatch = Command(tmp_path, valkey)
    redispatch.config.write_text(json.dumps(redispatch.sections))
    words = ("dead", "replay", "--rate")
    with link(valkey) as client:
        pager = Book(client)
        ids = pager.die(2000)
        process = await processes.redispatch(*words, "50", config=redispatch.config)
        await eventually(lambda: pager.entries() or process.code is not None, "the first is replayed")
        process.signal(signal.SIGINT)
        assert await process.wait_exit() == 130, process.text
        done = 2000 - len(pager.dead())
        assert f"interrupted after {done} of 2000; run it again for the rest" in process.err
        assert 0 < len(pager.dead()) < 2000
        assert pager.unaccounted() == (0, 0)
        process = await processes.redispatch(*words, "100000", config=redispatch.config)
        assert await process.wait_exit() == 0, process.text
        assert [entry[b"replay_of"].decode() for entry in pager.entries()] == ids
        assert pager.unaccounted() == (0, 0)
        process.assert_no_traceback()


async def test_replay_does_not_chase_what_dies_again(
    valkey: Server, connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch that was replayed dies again at once; every letter is moved once all the same."""
    redis = connected(valkey)
    monkeypatch.setattr(move, "BATCH", 10)
    with link(valkey) as client:
        pager = Book(client)
        pager.die(35)

        def dies_again(moved: int, gone: int) -> None:
            pager.die(moved)

        run = move.Run(redis, "redispatch", NOWHERE, Chosen().wanted(0), dies_again, asyncio.Event())
        moved = await move.replay(run, ["pager"], 1000, move.Pace(None), force=False)
        assert [one.done for one in moved] == [35]
        assert len(pager.dead()) == 35


async def test_what_somebody_else_took_is_told(valkey: Server, connected: Connected) -> None:
    """The page is read; its second batch has gone when its turn comes."""
    redis = connected(valkey)
    with link(valkey) as client:
        pager = Book(client)
        ids = pager.die(16)

        def told(moved: int, gone: int) -> None:
            if moved == 10:
                client.hincrby(pager.at.ledger, "discarded", client.xdel(pager.at.dead, *ids))

        run = move.Run(redis, "redispatch", NOWHERE, Chosen().wanted(0), told, asyncio.Event())
        moved = await move.replay(run, ["pager"], 1000, move.Pace(100), force=False)
        assert [(one.done, one.gone) for one in moved] == [(10, 6)]
        assert pager.unaccounted() == (0, 0)


def test_progress_is_shown_to_a_terminal(tmp_path: Path, valkey: Server) -> None:
    redispatch = Command(tmp_path, valkey)
    redispatch("status")  # writes the configuration
    with link(valkey) as client:
        Book(client).die(300)
        master, slave = pty.openpty()
        words = [sys.executable, "-m", "ops", "dead", "replay", "--config", str(redispatch.config)]
        environ = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
        with subprocess.Popen(
            words, cwd=ROOT, stdin=slave, stdout=subprocess.PIPE, stderr=slave, env=environ
        ) as process:
            os.close(slave)
            shown = drained(master)
            assert process.stdout is not None
            assert process.stdout.read() == b"replayed 300 dead letters (pager 300)\n"
            assert process.wait(20) == 0
        assert b"300/300" in shown

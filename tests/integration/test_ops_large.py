"""Dead letters whose alert is in an object, through the commands: shown, exported, discarded, replayed."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from common import reference
from common.alert import encode
from common.objects import Objects
from common.reference import Reference
from tests.support.books import NAMESPACE, Book, link
from tests.support.deliveries import alert
from tests.support.ops import Command
from tests.support.servers import Server

TEXT = "x" * 20_000


class Shelf:
    """A destination's dead letters with objects."""

    def __init__(self, book: Book, directory: Path) -> None:
        self.book = book
        self.directory = directory
        self.objects = Objects(str(directory), NAMESPACE)

    def die(self, key: str) -> Reference:
        """One."""
        large = alert(key=key, summary=TEXT + key)
        told = asyncio.run(self.objects.put(self.book.name, large, encode(large)))
        self.book.die(key=key, alert=reference.encode(told), object=told.object)
        self.book.link.sadd(self.book.at.objects, told.object)
        return told

    def there(self) -> set[str]:
        """Objects that there are."""
        return {each.name for each in self.directory.rglob("*") if each.is_file()}

    def listed(self) -> set[str]:
        """Those that are referred to."""
        return {each.decode() for each in self.book.link.smembers(self.book.at.objects)}


@pytest.fixture
def redispatch(tmp_path: Path, server: Server) -> Command:
    return Command(tmp_path, server)


@pytest.fixture
def shelf(server: Server, tmp_path: Path) -> Iterator[Shelf]:
    with link(server) as client:
        yield Shelf(Book(client), tmp_path / "data" / "objects")


def test_shown_with_its_alert(redispatch: Command, shelf: Shelf) -> None:
    shelf.die("a")
    shelf.book.die(key="small")
    a, small = redispatch.json("dead", "show")
    assert a["alert"]["summary"] == TEXT + "a"
    assert "object_error" not in a
    assert small["alert"]["host"] == "db1"
    assert TEXT + "a" in redispatch("dead", "show").output
    assert [each["key"] for each in redispatch.json("dead", "list")] == ["a", "small"]


def test_exported_whole(redispatch: Command, shelf: Shelf) -> None:
    keys = [f"k{n}" for n in range(20)]
    for key in keys:
        shelf.die(key)
    lines = [json.loads(line) for line in redispatch("dead", "export").stdout.splitlines()]
    assert [line["key"] for line in lines] == keys
    assert [line["alert"]["summary"] for line in lines] == [TEXT + key for key in keys]
    assert len(shelf.there()) == 20


def test_what_can_not_be_got_is_said(redispatch: Command, shelf: Shelf) -> None:
    missing = shelf.die("missing")
    shelf.die("there")
    (shelf.directory / NAMESPACE / "pager" / missing.object).unlink()
    told, whole = redispatch.json("dead", "show")
    assert told["object_error"] == "there is no such object"
    assert told["alert"]["object"] == missing.object
    assert whole["alert"]["summary"] == TEXT + "there"
    assert "object_error there is no such object" in redispatch("dead", "show").output
    shutil.rmtree(shelf.directory)
    (first, _) = redispatch.json("dead", "show")
    assert "No such file or directory" in first["object_error"]


def test_discard_takes_the_objects_along(redispatch: Command, shelf: Shelf) -> None:
    shelf.die("a")
    kept = shelf.die("b")
    said = redispatch("dead", "discard", "--yes", "--key", "a")
    assert said.output == "discarded 1 dead letter (pager 1)\n"
    assert shelf.there() == shelf.listed() == {kept.object}
    assert shelf.book.unaccounted() == (0, 0)


def test_discard_while_the_store_is_away(redispatch: Command, shelf: Shelf) -> None:
    shelf.die("a")
    moved = shelf.directory.rename(shelf.directory.parent / "elsewhere")
    shelf.directory.write_text("not a directory")
    said = redispatch("dead", "discard", "--yes")
    assert said.stdout == "discarded 1 dead letter (pager 1)\n"
    assert said.stderr == "1 object could not be removed now; a dispatcher does that within two hours\n"
    assert shelf.listed() == set()
    assert len(list(moved.rglob("*"))) == 3


def test_replay_moves_the_reference(redispatch: Command, shelf: Shelf) -> None:
    told = shelf.die("a")
    redispatch("dead", "replay", "--force")
    (entry,) = shelf.book.entries()
    assert entry[b"object"].decode() == told.object
    assert reference.decode(entry[b"alert"], entry[b"object"]) == told
    assert shelf.there() == shelf.listed() == {told.object}


def test_check_looks_at_the_path(redispatch: Command, shelf: Shelf) -> None:
    assert "objects" not in redispatch("check").output
    shelf.directory.parent.write_text("not a directory")
    said = redispatch("check").output
    assert f"{shelf.directory} can't be written" in said
    assert "ingest.inline_limit (8KiB)" in said
    redispatch.sections["objects"] = {"url": "memory://"}
    assert "is lost with its process" in redispatch("check").output
    redispatch.sections["objects"] = {"url": "s3://bucket"}
    assert "objects" not in redispatch("check").output

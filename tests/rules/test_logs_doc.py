"""The page about the log names every event and every field that the code writes, and no other."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from common import log
from tests.rules.pages import DOCS, PACKAGES, ROOT

PAGE = (DOCS / "logs.md").read_text("utf-8")
LOGGING = re.compile(r"(?:log|log\.Log\(.*\))\.(info|warning|error|write)")
TOGETHER = ROOT / "dispatcher" / "tell.py"  # puts the fields of its lines together
ALWAYS = {"time", "level", "service", "event", "traceback"}


def calls() -> Iterator[tuple[Path, ast.Call]]:
    """All calls that write a line."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call) and node.args and LOGGING.fullmatch(ast.unparse(node.func)):
                    yield path, node


def names(node: ast.AST) -> set[str]:
    """The field names in an expression: keywords of calls, keys of dictionaries."""
    found: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.keyword) and each.arg:
            found.add(each.arg)
        if isinstance(each, ast.Dict):
            found |= {str(key.value) for key in each.keys if isinstance(key, ast.Constant)}
        if isinstance(each, ast.Subscript) and ast.unparse(each.value) == "fields":
            found.add(str(ast.literal_eval(each.slice)))
    return found


def written() -> dict[str, set[str]]:
    """Events with the fields of their calls."""
    events: dict[str, set[str]] = defaultdict(set)
    for _, call in calls():
        place = 1 if ast.unparse(call.func).endswith(".write") else 0
        name = call.args[place]
        either = {"entries_taken_over", "entries_vanished"}  # one call logs both
        told = {str(name.value)} if isinstance(name, ast.Constant) else either
        for event in told:
            events[event] |= {field for part in (*call.args, *call.keywords) for field in names(part)}
    for fields in events.values():
        fields.discard("fault")
    return events


def rows(heading: str) -> dict[str, set[str]]:
    """The table under a heading: the words in backticks of the first column, with those of the second."""
    table = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.+?) \| (.*?) \|", table, re.MULTILINE)
    return {
        name: set(re.findall(r"`(\w+)`", fields))
        for first, fields in cells
        for name in re.findall(r"`(\w+)`", first)
    }


def test_every_event() -> None:
    assert set(rows("Events")) == set(written()) - {"event"}


def test_the_fields_of_every_event() -> None:
    told = rows("Events")
    for event, fields in written().items():
        if event not in ("attempt", "attempt_broke", "dead", "refused", "lines_left_out"):
            assert told.get(event) == fields, event


def test_the_fields_of_canonical_lines() -> None:
    tree = ast.parse(TOGETHER.read_text("utf-8"))
    together = names(tree) - {"fault"}
    told = rows("Events")
    assert told["attempt"] | told["dead"] | told["attempt_broke"] == together
    refused = names(ast.parse((ROOT / "ingest" / "refuse.py").read_text("utf-8")))
    assert told["refused"] == refused
    assert told["lines_left_out"] >= {"of", "count"}


def test_every_field_is_explained() -> None:
    used = set().union(*rows("Events").values())
    assert set(rows("Fields")) == used | ALWAYS


def test_variables() -> None:
    assert set(rows("Variables")) == {log.STYLE, log.LEVEL, log.RATE}

"""The documents: complete, true where that can be looked up, and free of what must not be said."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import click
import pytest

from common import __version__, outcomes, trouble
from common.alert import Status
from common.states import State
from dispatcher.measure import GATES
from ingest.event import Source
from ingest.metrics import Outcomes
from ops.cli import COMMANDS, main
from tests.rules.pages import DOCS, PACKAGES, ROOT, anchors, files, links, pages

UNSAFE = ("no_aof", "eviction", "second_group")
FORBIDDEN = {
    "a promise that nobody can keep": re.compile("exactly[ -]" + "once", re.IGNORECASE),
    "a place on somebody's machine": re.compile(r"(?<![\w.])/(?:work|root|home|Users)/\w"),
    "a conflict that nobody resolved": re.compile("^(<{7}|>{7}) ", re.MULTILINE),
    "an address of a package index": re.compile(r"\b(?:files\.python" + r"hosted|py" + r"pi)\.org\b"),
}
# Paragraphs of the glossary by their beginning, and the words that each explains.
PUBLIC: dict[str, Iterable[str]] = {
    "Status of an alert": Status,
    "What becomes of an item": (*Outcomes.__struct_fields__, *Source),
    "Outcomes": outcomes.OutcomeKind,
    "Results": outcomes.Result,
    "Reasons of dead letters": outcomes.Reason,
    "States of a record": State,
    "States of a gate": GATES,
    "Kinds of trouble": (*trouble.Kind, *UNSAFE),
}
GLOSSARY = (DOCS / "glossary.md").read_text("utf-8")

Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

each_page = pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_forbidden_is_said(what: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in files()
        for match in FORBIDDEN[what].finditer(path.read_text("utf-8"))
    ]
    assert found == []


def test_the_lock_has_no_address() -> None:
    assert "://" not in (ROOT / "requirements.lock").read_text("utf-8")


def test_every_module_says_what_it_is() -> None:
    """A docstring of one to six lines; empty `__init__.py` and the tests' own need none."""
    for package in (*PACKAGES, "benchmarks"):
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text("utf-8")
            told = ast.get_docstring(ast.parse(text))
            assert told or not text.strip(), f"{path.relative_to(ROOT)} has no docstring"


def test_every_public_function_says_what_it_does() -> None:
    silent = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text("utf-8"))
            named = [node for node in tree.body if isinstance(node, Named)]
            public = [node for node in named if not node.name.startswith("_")]
            where = path.relative_to(ROOT)
            silent += [f"{where}: {node.name}" for node in public if not ast.get_docstring(node)]
    assert silent == []


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for link, to, anchor in links(page):
        assert to.exists(), link
        assert not anchor or anchor in anchors(to), link


def test_every_document_is_found() -> None:
    """From the README or the list of documents; decisions from theirs, pictures from that of dashboards."""
    lists = [ROOT / "README.md", DOCS / "README.md", DOCS / "decisions" / "README.md", DOCS / "dashboards.md"]
    linked = {to for page in lists for _, to, _ in links(page)}
    hidden = {path for path in DOCS.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {str(path.relative_to(ROOT)) for path in hidden - linked} == set()


def test_the_way_leads_through_every_step() -> None:
    """A file that runs a script is a step, or lies beside the way."""
    told = {to for _, to, _ in links(DOCS / "way.md")}
    steps = {
        path
        for package in ("ingest", "dispatcher")
        for path in (ROOT / package).rglob("*.py")
        if f'Script("{package}", ' in path.read_text("utf-8")
    }
    assert len(steps) > 6
    assert steps - told == set()


def test_the_honest_sentence_is_the_same_everywhere() -> None:
    told = []
    for page in (ROOT / "README.md", DOCS / "guarantees.md"):
        found = re.search(r"<!-- the honest sentence -->\n(.*?)\n\n", page.read_text("utf-8"), re.DOTALL)
        assert found, page
        told.append(" ".join(found[1].split()))
    assert told[0] == told[1]
    assert told[0].startswith("**At least once, deduplicated.**")


def terms() -> list[str]:
    """What the glossary explains."""
    return re.findall(r"^- \*\*(.+?)\*\*", GLOSSARY, re.MULTILINE)


def test_no_term_is_explained_twice() -> None:
    assert len(terms()) == len(set(terms())) > 40


def test_terms_are_used() -> None:
    used = " ".join(
        path.read_text("utf-8")
        for path in files()
        if path.name != "glossary.md" and "tests" not in path.parts
    )
    words = re.sub(r"[\W_]+", " ", used.lower())
    unused = [term for term in terms() if not re.search(rf"\b{term.replace(' ', '[ ]')}", words)]
    assert unused == []


@pytest.mark.parametrize("beginning", PUBLIC)
def test_public_words_are_explained(beginning: str) -> None:
    told = re.search(rf"^{beginning}.*?(?=\n\n|\Z)", GLOSSARY, re.DOTALL | re.MULTILINE)
    assert told
    assert [word for word in PUBLIC[beginning] if f"`{word}`" not in told[0]] == []


def shown_commands() -> list[tuple[str, str]]:
    """Each `redispatch ...` line of a code block, with its page."""
    return [
        (str(page.relative_to(ROOT)), line)
        for page in pages()
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        for line in block.splitlines()
        if line.startswith("redispatch ")
    ]


@pytest.mark.parametrize(("page", "line"), shown_commands())
def test_commands_exist(page: str, line: str) -> None:
    words, options = line.split()[1:], re.findall(r"(?<=\s)--?[a-z-]+", line)
    command: click.Command = main
    context = click.Context(main)
    while isinstance(command, click.Group) and words:
        found = command.get_command(context, words[0])
        if found is None:
            break
        command, words = found, words[1:]
    assert command is not main
    known = {option for param in command.params for option in param.opts}
    assert set(options) <= known


def test_metrics_that_are_named_exist() -> None:
    page = (DOCS / "metrics.md").read_text("utf-8")
    known = set(re.findall(r"^\| `(redispatch_\w+)`", page, re.MULTILINE))
    for path in pages():
        named = set(re.findall(r"`(redispatch_\w+)[`{]", path.read_text("utf-8")))
        assert named <= known, path


def test_commands_in_prose_exist() -> None:
    for path in pages():
        for name in re.findall(r"`redispatch ([a-z]+)", path.read_text("utf-8")):
            assert name in COMMANDS, path


def test_the_changelog_knows_this_version() -> None:
    assert f"\n## {__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")

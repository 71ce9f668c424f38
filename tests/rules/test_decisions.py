"""The decisions: each says what was asked, what was chosen and what would change it; the list is complete."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.rules.pages import DOCS, ROOT

DECISIONS = sorted((DOCS / "decisions").glob("[0-9]*.md"))
OTHER = DOCS / "decisions" / "dependencies.md"
LONGEST = 550  # words: half a page, and a table

each = pytest.mark.parametrize("page", [*DECISIONS, OTHER], ids=lambda page: page.stem)


@each
def test_question_choice_and_what_would_change_it(page: Path) -> None:
    text = page.read_text("utf-8")
    places = [text.find(f"**{part}") for part in ("Question.**", "Choice.**", "What would change it.**")]
    assert places[0] > 0, page
    assert places == sorted(places), page
    assert len(text.split()) <= LONGEST * (2 if page == OTHER else 1)  # that one is a table


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_number(page: Path) -> None:
    number = re.fullmatch(r"(\d{4})-[a-z0-9-]+", page.stem)
    assert number, page
    title = page.read_text("utf-8").split("\n", 1)[0]
    assert re.match(rf"# 0*{int(number[1])}[.:] \S", title), title


def test_numbers_are_taken_once() -> None:
    taken = Counter(page.name[:4] for page in DECISIONS)
    assert [number for number, times in taken.items() if times > 1] == []


def test_the_list_is_complete() -> None:
    listed = (DOCS / "decisions" / "README.md").read_text("utf-8")
    assert re.findall(r"\]\(([0-9]\S+\.md)\)", listed) == [page.name for page in DECISIONS]


def names(requirements: list[str]) -> set[str]:
    """Of packages, without versions, extras and markers."""
    return {re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in requirements}


def rows(text: str) -> list[list[str]]:
    """The cells of all tables."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_each_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    told = rows(OTHER.read_text("utf-8"))
    tables = ("dependency", "extra", "group", "to build")
    heads = [place for place, cells in enumerate(told) if cells[0] in tables]
    plain, extra, group, build = (
        told[start + 1 : end] for start, end in zip(heads, [*heads[1:], len(told)], strict=True)
    )
    assert {cells[0] for cells in plain} == names(project["project"]["dependencies"])
    wanted = {(name, package) for name in extras for package in names(extras[name])}
    assert {(cells[0], cells[1]) for cells in extra} == wanted
    groups = project["dependency-groups"]
    wanted = {(name, package) for name in groups for package in names(groups[name])}
    assert {(cells[0], cells[1]) for cells in group} == wanted
    lines = (ROOT / "requirements.in").read_text("utf-8").splitlines()
    built = names([line for line in lines if not line.startswith("#")])
    assert {cells[0] for cells in build} == built
    assert all(cells[-1] for cells in told)

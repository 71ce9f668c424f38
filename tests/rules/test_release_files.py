"""The version stands in one place, and what repeats it agrees; the changelog has its form."""

from __future__ import annotations

import re

from common import __version__
from tests.rules.pages import ROOT, pages

CHANGELOG = (ROOT / "CHANGELOG.md").read_text("utf-8")
HEADING = re.compile(r"^## (\d+)\.(\d+)\.(\d+), (not released yet|\d{4}-\d{2}-\d{2})$")


def test_the_changelog_has_its_form() -> None:
    heads = [line for line in CHANGELOG.splitlines() if line.startswith("## ")]
    found = [HEADING.match(line) for line in heads]
    assert [line for line, match in zip(heads, found, strict=True) if match is None] == []
    versions = [tuple(int(match[n]) for n in (1, 2, 3)) for match in found if match]
    assert versions == sorted(set(versions), reverse=True)
    assert ".".join(str(part) for part in versions[0]) == __version__
    assert [match[0] for match in found[1:] if match and match[4] == "not released yet"] == []


def test_its_parts_are_lists() -> None:
    for part in re.split(r"^### ", CHANGELOG, flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        assert re.match(r"\n(- |[A-Z])", text), title


def test_the_version_stands_in_one_place() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert 'dynamic = ["version"]' in project
    assert 'path = "common/__init__.py"' in project


def test_what_repeats_it_agrees() -> None:
    told = {
        (page.name, version)
        for page in pages()
        for version in re.findall(r"\bredispatch[:=-]+(\d+\.\d+\.\d+)\b", page.read_text("utf-8"))
    }
    assert {version for _, version in told} <= {__version__}, told

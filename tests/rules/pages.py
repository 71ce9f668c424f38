"""The files of the repository and the words in them, for the rules about documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PACKAGES = ("common", "ingest", "dispatcher", "ops")
_SUFFIXES = {".py", ".lua", ".md", ".yaml", ".toml", ".in", ".lock", ""}
_TOP = (*PACKAGES, "benchmarks", "docs", "tests", ".ci", "k8s", "grafana", "compose")


def files() -> Iterator[Path]:
    """Every text file that is part of the repository."""
    top_files = (path for path in ROOT.iterdir() if path.is_file() and path.suffix in _SUFFIXES)
    yield from (path for path in top_files if path.name != ".git")  # a file in a second working tree
    for top in _TOP:
        for path in (ROOT / top).rglob("*"):
            if path.is_file() and path.suffix in _SUFFIXES and "__pycache__" not in path.parts:
                yield path


def pages() -> list[Path]:
    """Every Markdown page."""
    return sorted(path for path in files() if path.suffix == ".md")


def links(page: Path) -> Iterator[tuple[str, Path, str]]:
    """What a page links to: as written, the file it leads to, and the anchor or ""."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            yield link, (page.parent / path).resolve() if path else page, anchor


def anchors(page: Path) -> set[str]:
    """Those of its headings."""
    heads = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}

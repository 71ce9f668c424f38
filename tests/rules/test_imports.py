"""Imports go one way: common knows nobody, ingest and dispatcher know common, ops knows all three."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAY_IMPORT = {
    "common": {"common"},
    "ingest": {"common", "ingest"},
    "dispatcher": {"common", "dispatcher"},
    "ops": {"common", "ingest", "dispatcher", "ops"},
}
OURS = {*MAY_IMPORT, "benchmarks", "docs", "tests"}


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and top-level package of each import, those inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield node.lineno, (node.module or "").partition(".")[0]


def named(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Modules of ours named in texts, as for `import_module` and `Script`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            first = node.args[0] if node.args else None
            if node.func.id in ("import_module", "Script") and isinstance(first, ast.Constant):
                yield node.lineno, str(first.value).partition(".")[0]


def against(package: str, source: str) -> list[tuple[int, str]]:
    """What a file of that package must not import."""
    tree = ast.parse(source)
    found = {name for name in (*imported(tree), *named(tree)) if name[1] in OURS}
    return sorted(name for name in found if name[1] not in MAY_IMPORT[package])


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_go_one_way(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    wrong = {str(file.relative_to(ROOT)): against(package, file.read_text("utf-8")) for file in files}
    assert {file: names for file, names in wrong.items() if names} == {}


@pytest.mark.parametrize(
    ("package", "source", "found"),
    [
        ("common", "from ingest.parse import alerts", [(1, "ingest")]),
        ("ingest", "def f() -> None:\n    import dispatcher.take", [(2, "dispatcher")]),
        ("dispatcher", 'Script("ingest", "observe")', [(1, "ingest")]),
        ("ops", "from tests.support import servers", [(1, "tests")]),
        ("ops", "from dispatcher import guard", []),
        ("dispatcher", "import asyncio\nfrom common import keys", []),
    ],
)
def test_what_is_wrong_is_seen(package: str, source: str, found: list[tuple[int, str]]) -> None:
    assert against(package, source) == found

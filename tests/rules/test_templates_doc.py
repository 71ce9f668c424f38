"""docs/templates.md: its examples are valid, and make what stands below them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from common.config import load
from dispatcher.destinations import kinds
from dispatcher.destinations.compose import LONGEST_VALUE
from dispatcher.destinations.sandbox import ROUNDS, Sandbox
from dispatcher.destinations.template import LONGEST, OF_ALL, OF_ONE
from ops.dry_run import dry_run
from tests.rules.pages import DOCS

PAGE = (DOCS / "templates.md").read_text("utf-8")
EXAMPLES = re.findall(r"<!-- example -->\n```yaml\n(.*?)```\n\n```\w+\n(.*?)```", PAGE, re.DOTALL)
ALERT = re.search(r"<!-- alert -->\n```json\n(.*?)```", PAGE, re.DOTALL)
NOW = 1_795_986_120_000


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == PAGE.count("<!-- example -->") == 3


@pytest.mark.parametrize(("settings", "made"), EXAMPLES, ids=lambda text: text.split("\n")[0])
def test_an_example_makes_what_is_said(tmp_path: Path, settings: str, made: str) -> None:
    assert ALERT is not None
    file = tmp_path / "redispatch.yaml"
    file.write_text("destinations:\n  -\n" + re.sub("^", "    ", settings, flags=re.MULTILINE), "utf-8")
    (told,) = dry_run(load(str(file), {}, kinds), ALERT[1].encode(), NOW).alerts
    (sent,) = told.destinations
    assert sent.request is not None, sent.note
    assert sent.request.body.rstrip() == made.rstrip()


def test_names_filters_and_bounds_are_those_of_the_code() -> None:
    names, filters = (
        set(re.findall(r"`(\w+)", " ".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))))
        for table in re.findall(r"^\| (?:name|filter) \|.*?\n\n", PAGE, re.DOTALL | re.MULTILINE)
    )
    assert names == {*OF_ONE, *OF_ALL}
    known = {name for name in Sandbox().filters if name.isidentifier()}
    assert filters == known - {"d", "count"}  # short for default and length
    for bound in (LONGEST, ROUNDS, LONGEST_VALUE):
        assert f"{bound:,}" in PAGE

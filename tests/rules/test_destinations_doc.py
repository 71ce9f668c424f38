"""The page about destinations: an example for every type, each of which is valid, and no type without."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from common.config import load
from dispatcher.destinations import kinds
from tests.rules.pages import DOCS

PAGE = (DOCS / "destinations.md").read_text("utf-8")
CHAPTERS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
ENVIRON = defaultdict(
    str,
    PAGER_SECRET="whsec_" + "c2VjcmV0" * 4,
    SLACK_URL="https://slack.example/services/T0/B0/x",
    PAGERDUTY_KEY="0" * 32,
    PHONE_URL="json://phone.example/",
)


def test_every_type_has_its_chapter() -> None:
    assert set(kinds.OURS) == CHAPTERS.keys() - {"A type of your own"}
    assert re.findall(r"^\| \[`(\w+)`\]\(#\1\)", PAGE, re.MULTILINE) == list(CHAPTERS)[:-1]


@pytest.mark.parametrize("name", kinds.OURS)
def test_its_example_is_valid(name: str, tmp_path: Path) -> None:
    (example,) = re.findall(r"^```yaml\n(.*?)^```", CHAPTERS[name], re.DOTALL | re.MULTILINE)
    file = tmp_path / "redispatch.yaml"
    file.write_text(example, "utf-8")
    settings = load(str(file), ENVIRON, kinds)
    assert settings.destinations[0].type == name
    assert [told for each in settings.destinations for told in kinds.warnings(each)] == []
    assert kinds.make(settings.destinations[0])


def test_which_types_batch() -> None:
    told = dict(re.findall(r"^\| \[`(\w+)`\].*\| (yes|no) \|$", PAGE, re.MULTILINE))
    assert told == {name: "yes" if kinds.batches(name) else "no" for name in kinds.OURS}

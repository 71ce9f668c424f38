"""The page about HTTP names every field and every status that there is, and no other."""

from __future__ import annotations

import re

import pytest
from msgspec import Struct

from dispatcher.destinations.payload import Data
from ingest.formats import native
from ingest.metrics import CODES
from ingest.operations import POSTED
from tests.rules.pages import DOCS

PAGE = (DOCS / "http.md").read_text("utf-8")


def named(heading: str) -> list[str]:
    """The first column of the table under that line, its words in backticks."""
    rows = re.findall(
        r"^\|(.*?)\|", PAGE.partition(heading)[2].partition("\n\n| ")[2].partition("\n\n")[0], re.M
    )
    return [word for row in rows for word in re.findall(r"`(\w+)`", row)]


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("An alert, `POST /v1/alerts`", native.AlertBody),
        ("A reading, `POST /v1/readings`", native.ReadingBody),
        ("The body is", Data),
    ],
)
def test_fields(heading: str, kind: type[Struct]) -> None:
    assert sorted(named(heading)) == sorted(kind.__struct_fields__)


def test_statuses() -> None:
    table = PAGE.partition("| status |")[2].partition("\n\n")[0]
    told = {
        int(code) for row in re.findall(r"^\| (\d.*?)\|", table, re.M) for code in re.findall(r"\d+", row)
    }
    assert told == set(CODES)


def test_routes() -> None:
    """Each of them has a row in the page about senders, or a table here."""
    told = PAGE + (DOCS / "formats.md").read_text("utf-8")
    assert [route for route in POSTED if f"`POST {route}`" not in told] == []
    assert set(re.findall(r"`POST (/[^`]*)`", told)) == set(POSTED)

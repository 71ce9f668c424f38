"""The page about scaling says what `ops/scale.py` reckons with."""

from __future__ import annotations

import re

import pytest

from common.settings import Destination, Retry, Settings
from common.units import Rate
from ops import scale
from tests.rules.pages import DOCS

PAGE = (DOCS / "scaling.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("what", "figure"),
    [
        ("ingest", f"{scale.INGEST} us"),
        ("dispatcher, per destination", f"{scale.DISPATCHER} us"),
        ("Redis, per destination", f"{scale.SERVER} us"),
        ("a delivery that waits, beside what is remembered of it", str(scale.WAITING)),
        ("what is remembered of a delivery (`max_age` + `remember`)", str(scale.REMEMBERED)),
        ("what is remembered of an incident (`remember`)", str(scale.INCIDENT)),
    ],
)
def test_figures(what: str, figure: str) -> None:
    assert f"| {what} | {figure} |" in PAGE


def test_rates() -> None:
    page = Settings(destinations=[Destination(name="pager", type="webhook", retry=Retry(preset="page"))])
    follows = PAGE.partition("## What follows")[2]
    rows = re.findall(r"^\| ([\d,]+) \| (.+) \|$", follows, re.MULTILINE)
    assert [rate for rate, _ in rows] == ["1,000", "10,000", "100,000"]
    for rate, told in rows:
        needed = scale.need(page, Rate(rate.replace(",", "")))
        cells = [needed.ingest, needed.dispatchers, needed.nodes, scale.readable(needed.memory)]
        assert told == " | ".join(map(str, cells)) + f" | {needed.slots:,}"


def test_what_one_node_does() -> None:
    one = int(scale.BUSY * 1e6 / scale.SERVER)
    assert f"does about {round(one, -2):,} alerts/s" in PAGE

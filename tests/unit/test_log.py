"""A log line is one line whatever is in it, and of bounded length."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from common import log
from common.lines import LONGEST, LONGEST_LINE, LONGEST_TRACEBACK

Tell = Callable[..., str]
HOSTILE = [
    "\udcff",
    "a\nb",
    "\x1b[2J",
    "\x00",
    "\u2028",
    "\x9b31m",
    "\x7f",
    "\u202egnp.exe",
    "\U000e0041",
    "\u200b",
]


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Tell]:
    """`tell(style, **fields)`: what a line with these fields looks like; `fault` is an exception."""
    logger = logging.getLogger()
    level = logger.level
    monkeypatch.setattr(logger, "handlers", [])

    def write(style: str, **fields: Any) -> str:
        monkeypatch.setenv(log.STYLE, style)
        log.setup("test")
        log.Log("test").error("told", **fields)
        return capsys.readouterr().err

    yield write
    logger.setLevel(level)


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
@pytest.mark.parametrize("style", ["json", "console"])
def test_nothing_breaks_a_line(tell: Tell, style: str, text: str) -> None:
    told = tell(style, value=f"before {text} behind", fault=None)
    assert told.endswith("\n")
    assert told[:-1].isprintable()
    if style == "json":
        assert json.loads(told)["value"] == f"before {log.encodable(text)} behind"


@pytest.mark.parametrize(
    "text", ["x decision=dead", 'x" decision="dead', "a\\", "", "x\tdecision=dead"], ids=ascii
)
def test_no_text_forges_a_field(tell: Tell, text: str) -> None:
    told = tell("console", error=text, last=1)
    head, _, rest = told.partition("error=")
    assert head.endswith(" test error told ")
    assert rest[0] == '"'
    body = rest.rstrip().removesuffix(" last=1")
    assert body[-1] == '"'
    inside = body[1:-1].replace("\\\\", "").replace('\\"', "")
    assert '"' not in inside


def test_what_is_plain_stays_so(tell: Tell) -> None:
    assert tell("console", key="web-1:disk~2ffull", n=3, none=None).endswith(" key=web-1:disk~2ffull n=3\n")
    assert "none" not in json.loads(tell("json", none=None))


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize("text", ["a", "\x00", "ä", "\U000e0041", "\udcff"], ids=ascii)
def test_lines_are_bounded(tell: Tell, style: str, text: str) -> None:
    told = tell(style, **{f"field_{n}": text * 2_000_000 for n in range(20)})
    assert len(told) <= LONGEST_LINE + 1
    if style == "json":
        assert len(json.loads(told)) == 24


def test_a_value_is_bounded(tell: Tell) -> None:
    assert json.loads(tell("json", value="a" * 5000))["value"] == "a" * LONGEST + "…"


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_traceback_is_bounded_and_forges_nothing(tell: Tell, style: str) -> None:
    fault = RuntimeError("\udcff\n13:37:00 test info forged\n" + "x" * 100_000 + "\x1b[2J the end")
    told = tell(style, fault=fault)
    assert len(told) < LONGEST_LINE + 2 * LONGEST_TRACEBACK
    assert "the end" in told
    assert "\x1b" not in told
    first, *others = told.splitlines()
    assert "told" in first
    assert all(line.startswith("    ") for line in others)
    assert (style == "json") == (not others)
    small = tell(style, fault=RuntimeError("\udcff\nforged"))
    assert "udcff" in small
    assert "\nforged" not in small


@pytest.mark.parametrize(
    ("name", "value"),
    [(log.STYLE, "xml"), (log.LEVEL, "loud"), (log.RATE, "-1"), (log.RATE, "nan"), (log.RATE, "x")],
)
def test_an_environment_that_makes_no_sense(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"{name}: expected .*, got '{value}'"):
        log.setup("test")

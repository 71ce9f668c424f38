"""A log line is a line of JSON whatever is in it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from common import log


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The root logger, for this test to set up."""
    logger = logging.getLogger()
    level = logger.level
    monkeypatch.setattr(logger, "handlers", [])
    yield
    logger.setLevel(level)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("text", ["\udcff", "a\nb", "\x1b[2J", "\x00", "\u2028"])
@pytest.mark.parametrize("style", ["json", "console"])
def test_nothing_breaks_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], style: str, text: str
) -> None:
    monkeypatch.setenv("REDISPATCH_LOG", style)
    log.setup("test")
    log.Log("test").warning("told", value=text)
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "\x1b" not in told
    if style == "json":
        assert json.loads(told)["value"] in (text, "\\udcff")


@pytest.mark.usefixtures("root")
def test_a_traceback_with_bytes_that_are_no_text_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDISPATCH_LOG", "json")
    log.setup("test")
    log.Log("test").error("broke", fault=RuntimeError("\udcff"))
    assert "udcff" in json.loads(capsys.readouterr().err)["traceback"]

"""Texts that fit: cut with an ellipsis, on one line, and never something that UTF-8 can't hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.destinations.wording import cut, line, subject
from tests.support.deliveries import alert


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("abcde", "abcde"),
        ("abcdef", "abcd…"),
        ("abc🔥", "abc🔥"),
        ("abcd🔥", "abcd…"),
        ("abc🔥🔥", "abc…"),
        ("a\ud800b", "a?b"),
        ("", ""),
    ],
)
def test_cut(text: str, short: str) -> None:
    assert cut(text, 5) == short


@given(st.text(st.characters(codec=None)), st.integers(1, 20))
def test_what_is_cut_fits_and_is_text(text: str, most: int) -> None:
    for short in (cut(text, most), line(text, most)):
        assert len(short.encode("utf-16-le")) <= 2 * most
        short.encode()
    if len(text.encode("utf-16-le", "surrogatepass")) <= 2 * most:
        assert len(cut(text, most)) == len(text)


def test_line() -> None:
    assert line(" a\n\tb\u2028c ", 9) == "a b c"
    assert line("\n" * 2**20, 9) == ""
    assert line("a b " * 2**20, 5) == "a b …"


@pytest.mark.parametrize(
    ("host", "name", "says"),
    [("h", "n", "n on h"), ("", "n", "n"), (" ", "n", "n"), ("", " ", "(no name)")],
)
def test_subject(host: str, name: str, says: str) -> None:
    assert subject(alert(host=host, name=name), 20) == says

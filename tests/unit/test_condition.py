"""Conditions of rules: syntax, meaning, and whether two could hold at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.condition import Condition

OPERATORS = [">=", "<=", "==", "!=", ">", "<"]


@pytest.mark.parametrize(
    ("text", "holds", "not_holds"),
    [
        (">= 100", 100, 99.9),
        ("<=100", 100, 100.1),
        (" > -5 ", -4.9, -5),
        ("< .5", 0.4, 0.5),
        ("== 1e3", 1000, 1001),
        ("!= 0", 1, 0),
    ],
)
def test_condition(text: str, holds: float, not_holds: float) -> None:
    condition = Condition.parse(text)
    assert condition.holds(holds)
    assert not condition.holds(not_holds)


@pytest.mark.parametrize(
    "bad",
    ["", "100", ">=", "=> 5", "= 5", ">= nan", ">= inf", ">= 1e999", "> 5 5", "> 5; < 6", "> 0x10", "> ٣"],
)
def test_no_condition(bad: str) -> None:
    with pytest.raises(ValueError, match="expected one of"):
        Condition.parse(bad)


@pytest.mark.parametrize(
    ("when", "clear", "overlaps"),
    [
        (">= 100", "< 90", False),
        (">= 100", "< 100", False),
        (">= 100", "<= 100", True),
        ("> 5", "> 4", True),
        ("!= 0", "== 0", False),
        ("!= 0", "!= 1", True),
        ("== 1", "== 2", False),
        ("> 1", "< 2", True),
    ],
)
def test_overlap(when: str, clear: str, overlaps: bool) -> None:
    assert Condition.parse(when).overlaps(Condition.parse(clear)) is overlaps


conditions = st.builds(Condition, st.sampled_from(OPERATORS), st.integers(-3, 3).map(float))


@given(conditions, conditions)
def test_overlap_is_what_trying_values_finds(one: Condition, other: Condition) -> None:
    tried = [half / 2 for half in range(-20, 21)]
    assert one.overlaps(other) is any(one.holds(value) and other.holds(value) for value in tried)

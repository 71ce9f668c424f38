"""The `when` and `clear` of a rule: an operator and a number, such as `>= 100`.

Pure; read by the configuration's checks and by evaluate. Raises ValueError that says what was expected.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable

from msgspec import Struct

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_TEXT = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*")


class Condition(Struct, frozen=True):
    """What a reading's value is compared with."""

    operator: str
    number: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """`>= 100`, `<90`, `!= 0`, `> 1e9`."""
        match = _TEXT.fullmatch(text)
        if match is None or not math.isfinite(float(match[2])):
            raise ValueError("expected one of >= > <= < == != and a number, such as '>= 100'")
        return cls(match[1], float(match[2]))

    def holds(self, value: float) -> bool:
        """Whether a value fulfils it."""
        return _OPERATORS[self.operator](value, self.number)

    def overlaps(self, other: Condition) -> bool:
        """Whether a value could fulfil both: each holds on intervals that end at its number, so that both
        numbers, what lies between them and what lies beyond them stand for all values."""
        middle = self.number / 2 + other.number / 2
        candidates = (-math.inf, self.number, middle, other.number, math.inf)
        return any(self.holds(value) and other.holds(value) for value in candidates)

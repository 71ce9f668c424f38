"""Durations, sizes and rates as people write them in a configuration.

Takes texts such as `1m`, `16MiB`, `1000/s` (or a bare number in the base unit); returns numbers that
print as they were meant. Raises ValueError that says what was expected.
"""

from __future__ import annotations

import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "KB": 1000, "MB": 1000**2, "GB": 1000**3}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_TERM = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


class Duration(float):
    """Seconds."""

    @classmethod
    def parse(cls, value: object) -> Duration:
        """`250ms`, `10s`, `1m30s`, `76h`, `2d`, or a number of seconds."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"expected a duration such as 10s, 5m or 76h, got {value!r}")
        if isinstance(value, str):
            terms = _TERM.findall(value.replace(" ", ""))
            if not terms or "".join(n + u for n, u in terms) != value.replace(" ", ""):
                raise ValueError(f"expected a duration such as 10s, 5m or 76h, got {value!r}")
            return cls(sum(float(number) * _SECONDS[unit] for number, unit in terms))
        if not 0 <= value < float("inf"):
            raise ValueError(f"expected a duration of zero or more, got {value!r}")
        return cls(value)

    @property
    def ms(self) -> int:
        """Milliseconds, the unit of every time in Redis."""
        return round(self * 1000)

    def __str__(self) -> str:
        for unit, seconds in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
            if self and self % seconds == 0:
                return f"{int(self // seconds)}{unit}"
        return f"{self.ms}ms" if self else "0s"

    def __repr__(self) -> str:
        return str(self)


class Size(int):
    """Bytes."""

    @classmethod
    def parse(cls, value: object) -> Size:
        """`8KiB`, `16MiB`, `1MB`, or a number of bytes."""
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return cls(value)
        match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
        if match is None or (match[2] or "B") not in _BYTES:
            raise ValueError(f"expected a size such as 8KiB or 16MiB, got {value!r}")
        return cls(float(match[1]) * _BYTES[match[2] or "B"])

    def __str__(self) -> str:
        for unit in ("GiB", "MiB", "KiB"):
            if self and self % _BYTES[unit] == 0:
                return f"{int(self) // _BYTES[unit]}{unit}"
        return f"{int(self)}B"

    def __repr__(self) -> str:
        return str(self)


class Rate(float):
    """Events per second."""

    @classmethod
    def parse(cls, value: object) -> Rate:
        """`1/s`, `1000/s`, `30/m`, `100/h`."""
        count, slash, unit = value.partition("/") if isinstance(value, str) else ("", "", "")
        try:
            rate = float(count) / _SECONDS[unit] if slash and unit != "ms" else 0.0
        except (ValueError, KeyError):
            rate = 0.0
        if not 0 < rate < float("inf"):
            raise ValueError(f"expected a rate such as 1/s, 30/m or 1000/s, got {value!r}")
        return cls(rate)

    def __str__(self) -> str:
        for unit, seconds in (("s", 1), ("m", 60), ("h", 3600)):
            if (self * seconds) % 1 == 0:
                return f"{int(self * seconds)}/{unit}"
        return f"{float(self)}/s"

    def __repr__(self) -> str:
        return str(self)


class Secret(str):
    """A text that prints as `***`; `reveal()` gives it to the one who needs it."""

    __slots__ = ()

    def reveal(self) -> str:
        """The text itself, for a signature or a comparison, never for a log line."""
        return str.__str__(self)

    def __str__(self) -> str:
        return "***"

    def __repr__(self) -> str:
        return "'***'"

    def __format__(self, spec: str) -> str:
        return "***"

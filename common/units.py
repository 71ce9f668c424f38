"""Durations, sizes, rates, addresses and secrets as people write them in a configuration.

Takes texts such as `1m`, `16MiB`, `1000/s`, `127.0.0.1:8080` (or a bare number in the base unit); returns
values that print as they were meant. Raises ValueError that says what was expected, and leaves it to the
caller to show what it got, since that may be a secret.
"""

from __future__ import annotations

import ipaddress
import math
import re
from typing import NamedTuple

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "KB": 1000, "MB": 1000**2, "GB": 1000**3}
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_TERM = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_TERMS = re.compile(rf"(?:{_TERM.pattern})+")
_PORT = re.compile(r"[0-9]{1,5}")
# Hosts that stand for every address of the machine, and by which one it reaches itself there.
EVERYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - names, nothing binds them
_LONGEST = 10 * 365 * 86400  # seconds; milliseconds of more would not fit where Redis keeps times
_LARGEST = 1024**4


class Duration(float):
    """Seconds."""

    @classmethod
    def parse(cls, value: object) -> Duration:
        """`250ms`, `10s`, `1m30s`, `76h`, `2d`, or a number of seconds. At most ten years."""
        seconds = _seconds(value)
        if seconds is None:
            raise ValueError("expected a duration such as 10s, 5m or 76h")
        if not 0 <= seconds <= _LONGEST:
            raise ValueError("expected a duration between zero and ten years")
        return cls(seconds)

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


def _seconds(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return min(max(value, -1.0), _LONGEST + 1.0)  # an int may be too long for a float
    if not isinstance(value, str):
        return None
    text = value.replace(" ", "")
    if _TERMS.fullmatch(text):
        return sum(float(number) * _SECONDS[unit] for number, unit in _TERM.findall(text))
    match = _NUMBER.fullmatch(text)
    return float(match[1]) if match and not match[2] else None


class Size(int):
    """Bytes."""

    @classmethod
    def parse(cls, value: object) -> Size:
        """`8KiB`, `16MiB`, `1MB`, or a number of bytes. At most 1024 GiB."""
        if isinstance(value, int) and not isinstance(value, bool):
            size: float = value
        else:
            match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
            if match is None or (match[2] or "B") not in _BYTES:
                raise ValueError("expected a size such as 8KiB or 16MiB")
            size = float(match[1]) * _BYTES[match[2] or "B"]
        if not 0 <= size <= _LARGEST:
            raise ValueError("expected a size between zero and 1024GiB")
        return cls(size)

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
        if not 0 < rate < math.inf:
            raise ValueError("expected a rate such as 1/s, 30/m or 1000/s")
        return cls(rate)

    def __str__(self) -> str:
        for unit in ("s", "m", "h", "d"):
            count = round(self * _SECONDS[unit], 9)  # 7/h is 7.000000000000001 without
            if count >= 1 and count == int(count):
                return f"{int(count)}/{unit}"
        return f"{float(self)}/s"

    def __repr__(self) -> str:
        return str(self)


class Address(NamedTuple):
    """Where a service listens: a host (empty: every address of the machine) and a port (0: any free one)."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """`127.0.0.1:8080`, `localhost:8080`, `[::1]:8080`, `:8080`."""
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        plain = not re.search(r"[\s/@\[\]]", host) and bracketed == (":" in host)
        if not (colon and plain and _PORT.fullmatch(port) and int(port) < 65536):
            raise ValueError("expected address:port such as 127.0.0.1:8080 or [::1]:8080")
        return cls(host, int(port))

    def __str__(self) -> str:
        """As `parse` takes it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def here(self) -> Address:
        """As this machine reaches it."""
        return Address(EVERYWHERE.get(self.host, self.host), self.port)

    @property
    def loopback(self) -> bool:
        """Reached from this machine only. A name other than localhost counts as reached from elsewhere."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class Secret:
    """A text that prints as `***`; `reveal()` gives it to the one who needs it.

    Not a `str`, so that joining, slicing, `+`, and every JSON encoder fail with it instead of showing it.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for a signature or a comparison, never for a log line."""
        return self._text

    def __str__(self) -> str:
        return "***"

    def __repr__(self) -> str:
        return "'***'"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __bool__(self) -> bool:
        return bool(self._text)

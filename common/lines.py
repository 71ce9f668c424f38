"""What a log line looks like: takes a record of `logging`, returns one line of text. Pure.

Values that are None are left out. Values and lines have a bounded length, and what is not printable (control
characters, escapes of terminals, marks that turn the direction of text) is escaped: no text from outside can
forge a line or a field, or do anything to whoever looks at it.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

LONGEST = 1024  # characters of a value
LONGEST_LINE = 8192  # characters of a line without its traceback
LONGEST_TRACEBACK = 8192  # characters; the end says what happened
_Value: TypeAlias = bool | int | float | str
_encode = msgspec.json.Encoder().encode
_BARE = re.compile(r'[^\s"=\\]+')
_QUOTED = {'"': '\\"', "\\": "\\\\"}


def encodable(text: str) -> str:
    """The text with lone surrogates, which is how bytes that are no UTF-8 come in, escaped."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


class Formatter(logging.Formatter):
    """What both styles have in common."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """The line; values are cut shorter when together they are too long."""
        most = LONGEST
        line = self._line(record, most)
        while len(line) > LONGEST_LINE and most > 16:
            most //= 4
            line = self._line(record, most)
        if not record.exc_info:
            return line
        text = self.formatException(record.exc_info)
        return self._with(
            line, encodable(text if len(text) <= LONGEST_TRACEBACK else "…" + text[-LONGEST_TRACEBACK:])
        )

    def _line(self, record: logging.LogRecord, most: int) -> str:
        raise NotImplementedError

    def _with(self, line: str, traceback: str) -> str:
        raise NotImplementedError


class Json(Formatter):
    """An object, in ASCII where anything else could not be seen."""

    def _line(self, record: logging.LogRecord, most: int) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, _Value] = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "service": self._service,
            "event": _cut(record.getMessage(), most),
            **dict(_fields(record, most)),
        }
        return _visible(_encode(line).decode())

    def _with(self, line: str, traceback: str) -> str:
        return f'{line[:-1]},"traceback":{_visible(_encode(traceback).decode())}}}'


class Console(Formatter):
    """`13:37:00 dispatcher warning attempt destination=pager error="HTTP 500"`; a traceback is indented."""

    def _line(self, record: logging.LogRecord, most: int) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        words = [clock, self._service, record.levelname.lower(), _plain(_cut(record.getMessage(), most))]
        return " ".join((*words, *(f"{name}={_word(value)}" for name, value in _fields(record, most))))

    def _with(self, line: str, traceback: str) -> str:
        return line + "".join(f"\n    {_plain(each)}" for each in traceback.splitlines())


def _fields(record: logging.LogRecord, most: int) -> Iterator[tuple[str, _Value]]:
    for name, value in getattr(record, "fields", {}).items():
        if value is not None:
            yield name, _cut(value, most)


def _cut(value: object, most: int) -> _Value:
    if isinstance(value, bool | int | float):
        return value
    text = str(value)
    return encodable(text if len(text) <= most else text[:most] + "…")


def _visible(line: str) -> str:
    r"""A line of JSON with `\u....` for what is not printable."""
    return line if line.isprintable() else "".join(c if c.isprintable() else _unicode(c) for c in line)


def _unicode(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


def _word(value: _Value) -> str:
    """As it is, or in quotes when its end could not be told otherwise."""
    text = str(value)
    if text.isprintable() and _BARE.fullmatch(text):
        return text
    return f'"{_plain("".join(_QUOTED.get(c, c) for c in text))}"'


def _plain(value: _Value) -> str:
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)

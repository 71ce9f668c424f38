"""Log lines: an event's fixed name and its fields, as JSON or for people.

Goes to stderr. `REDISPATCH_LOG` is `json` or `console`; without it a terminal gets the latter. Values are
cut to a bounded length and control characters are escaped, so that no text from outside can forge a line.
"""

from __future__ import annotations

import logging
import os
import sys
import time

import msgspec

LONGEST = 1024
_encode = msgspec.json.Encoder(enc_hook=str).encode


def setup(service: str) -> None:
    """Called once by each process."""
    handler = logging.StreamHandler(sys.stderr)
    style = os.environ.get("REDISPATCH_LOG") or ("console" if sys.stderr.isatty() else "json")
    handler.setFormatter(_Console(service) if style == "console" else _Json(service))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class Log:
    """`Log("dispatcher").warning("attempt", destination="pager", outcome="failed")`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, event: str, **fields: object) -> None:
        """Normal life."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Somebody should know."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, *, fault: BaseException | None = None, **fields: object) -> None:
        """Somebody should act; a programming fault brings its traceback along."""
        self._logger.error(event, extra={"fields": fields}, exc_info=fault)

    def _log(self, level: int, event: str, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields})


def encodable(text: str) -> str:
    """The text with lone surrogates, which is how bytes that are no UTF-8 come in, escaped."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _cut(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = encodable(str(value))
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


class _Json(logging.Formatter):
    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "service": self._service,
            "event": _cut(record.getMessage()),
        }
        line |= {name: _cut(value) for name, value in getattr(record, "fields", {}).items()}
        if record.exc_info:
            line["traceback"] = encodable(self.formatException(record.exc_info))
        return _encode(line).decode()


class _Console(logging.Formatter):
    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        told = " ".join(f"{name}={self._plain(value)}" for name, value in fields.items())
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{clock} {self._service} {record.levelname.lower()} {self._plain(record.getMessage())} {told}"
        return line.rstrip() + (
            f"\n{encodable(self.formatException(record.exc_info))}" if record.exc_info else ""
        )

    @staticmethod
    def _plain(value: object) -> str:
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(_cut(value)))

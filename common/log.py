"""Log lines: an event's fixed name and its fields, to stderr, as JSON or for people (`lines.py`).

The environment says how: `REDISPATCH_LOG` is `json` or `console` (without it a terminal gets the latter),
`REDISPATCH_LOG_LEVEL` the least that is written, `REDISPATCH_LOG_RATE` how many like lines per second
(`storm.py`). `setup` raises ValueError with a sentence for a person.
"""

from __future__ import annotations

import logging
import os
import sys
from math import isfinite

from common import lines

LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
STYLES = {"json": lines.Json, "console": lines.Console}
STYLE, LEVEL, RATE = "REDISPATCH_LOG", "REDISPATCH_LOG_LEVEL", "REDISPATCH_LOG_RATE"
USUAL_RATE = 10.0
encodable = lines.encodable


def setup(service: str, *, everything: bool = False) -> None:
    """Called once by each process; `everything`: whatever the level.

    Raises ValueError for an environment that says nothing sensible.
    """
    rate()
    style = STYLES[_chosen(STYLE, "console" if sys.stderr.isatty() else "json", STYLES)]
    level = LEVELS[_chosen(LEVEL, "info", LEVELS)]
    if everything:
        level = logging.INFO
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(style(service))
    logging.basicConfig(level=level, handlers=[handler], force=True)


def rate() -> float:
    """Lines per second of those that come in storms. Raises ValueError."""
    told = os.environ.get(RATE)
    if not told:
        return USUAL_RATE
    try:
        number = float(told)
    except ValueError:
        number = -1.0
    if not (isfinite(number) and number >= 0):
        raise ValueError(f"{RATE}: expected lines per second, 0 or more, got {told!r:.40}")
    return number


class Log:
    """`Log("dispatcher").warning("attempt", destination="pager", outcome="failed")`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, event: str, **fields: object) -> None:
        """Normal life."""
        self.write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Somebody should know."""
        self.write(logging.WARNING, event, fields)

    def error(self, event: str, *, fault: BaseException | None = None, **fields: object) -> None:
        """Somebody should act; a programming fault brings its traceback along."""
        self._logger.error(event, extra={"fields": fields}, exc_info=fault)

    def write(self, level: int, event: str, fields: dict[str, object]) -> None:
        """For whom the level depends on what happened."""
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields})


def _chosen(name: str, usual: str, known: dict[str, int] | dict[str, type[lines.Formatter]]) -> str:
    told = os.environ.get(name) or usual
    if told not in known:
        raise ValueError(f"{name}: expected {' or '.join(known)}, got {told!r:.40}")
    return told

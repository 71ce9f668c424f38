"""What is wrong with a configuration, all of it, each with its place.

The steps of `config.py` share one `Report`: reading tells it where things stand, every step adds the faults
it finds under a path such as `("destinations", 1, "url")`, and at the end they are raised as one ConfigError.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path as FilePath
from typing import TypeAlias

from msgspec import Struct

Path: TypeAlias = tuple[str | int, ...]


class Fault(Struct, frozen=True):
    """One thing that is wrong; `place` is `redispatch.yaml:12 destinations[1].url` or a variable's name."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class ConfigError(Exception):
    """The configuration can't be used; `faults` says why, its text lists them one per line."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


class Report:
    """Collects faults. One per path: what follows from a fault is not worth a second line."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.secret_files: set[FilePath] = set()  # whose content is a part of the configuration
        self._lines: dict[Path, int] = {}
        self._variables: dict[Path, str] = {}
        self._faults: dict[Path, Fault] = {}

    def stands(self, path: Path, line: int) -> None:
        """Note the line of the file that `path` stands on."""
        self._lines[path] = line

    def overridden(self, path: Path, variable: str) -> None:
        """Note that `path` comes from an environment variable."""
        self._variables[path] = variable

    def fault(self, path: Path, message: str) -> None:
        """Add a fault, unless this path, or one that it is part of, has one already."""
        if not any(self.faulty(path[:end]) for end in range(len(path) + 1)):
            self._faults[path] = Fault(self.place(path), message)

    def faulty(self, path: Path) -> bool:
        """Whether exactly this path has a fault."""
        return path in self._faults

    def place(self, path: Path) -> str:
        """Where `path` stands, for people; a missing one stands where what it belongs to stands."""
        if path in self._variables:
            return self._variables[path]
        known = next((path[:end] for end in range(len(path), 0, -1) if path[:end] in self._lines), None)
        line = f":{self._lines[known]}" if known else ""
        return f"{self.file}{line} {dotted(path)}".rstrip()

    def end(self) -> None:
        """Raise ConfigError when there were faults, in the order of the file."""
        if self._faults:
            raise ConfigError([self._faults[path] for path in sorted(self._faults, key=self._line)])

    def _line(self, path: Path) -> int:
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 0)


def dotted(path: Path) -> str:
    """`("destinations", 1, "url")` as `destinations[1].url`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{_printable(part)}" for part in path)
    return "".join(parts).removeprefix(".")


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean url?`, or nothing when nothing is close."""
    close = closest(word, known)
    return f"; did you mean {close}?" if close else ""

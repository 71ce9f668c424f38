"""What loading a configuration needs to know of a destination's type: its settings, and what it says of them.

`dispatcher/destinations/kinds.py` has them. Ingest, which delivers nothing, goes without: it looks only at
what every destination has, and needs no destination's secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

from common.faults import Path
from common.settings import Destination

Told: TypeAlias = Iterable[tuple[Path, str]]


class UnknownKind(LookupError):
    """Nobody has that type; the text says why when it can't be loaded."""


class Kinds(Protocol):
    """The types that are known."""

    def names(self) -> Sequence[str]:
        """All of them."""
        ...

    def settings(self, name: str) -> type[Destination]:
        """The struct of a type. Raises UnknownKind."""
        ...

    def faults(self, destination: Destination) -> Told:
        """What is wrong beyond types: path below the destination, and why."""
        ...

"""The types of destination by name: ours, and those of installed packages.

A type is a module with `Settings`, a struct that extends `common.settings.Destination`, and `make(settings)`,
which returns a DestinationType; `faults(settings)` and `warnings(settings)` if it has more to say about its
settings. A package names it in its entry points, group `redispatch.destinations`. It is imported when it is
used. Raises UnknownKind for a name that nobody has.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import cast

from common.kinds import Told, UnknownKind
from common.settings import Destination
from dispatcher.destinations.base import DestinationType, Unusable

GROUP = "redispatch.destinations"
OURS = ("webhook", "slack", "pagerduty", "apprise", "summary", "stdout", "discard")


def names() -> list[str]:
    """All types, ours first."""
    return [*OURS, *(name for name in _others() if name not in OURS)]


def settings(name: str) -> type[Destination]:
    """The struct that the configuration of a destination of this type becomes. Raises UnknownKind."""
    return _module(name).Settings


def faults(destination: Destination) -> Told:
    """What the type says is wrong with the settings."""
    yield from _ask(destination, "faults")
    if destination.batch is not None and not batches(destination.type):
        yield ("batch",), f"{destination.type} takes one alert at a time"


def batches(name: str) -> bool:
    """Whether the type can send several alerts as one request."""
    try:
        return hasattr(_module(name), "BATCHES")
    except UnknownKind:
        return True  # a fault already


def warnings(destination: Destination) -> Told:
    """What the type says may be meant and often is not."""
    return _ask(destination, "warnings")


def make(destination: Destination) -> DestinationType:
    """The destination, ready to deliver. Raises Unusable."""
    try:
        module = _module(destination.type)
    except UnknownKind as fault:
        because = str(fault) or f"is not one of {', '.join(names())}"
        raise Unusable(f"destination {destination.name}: type {destination.type!r} {because}") from fault
    return module.make(destination)


class _Module:
    """What `importlib` gives, for the type checker."""

    Settings: type[Destination]
    make: Callable[[Destination], DestinationType]


def _ask(destination: Destination, question: str) -> Told:
    try:
        module = _module(destination.type)
    except UnknownKind:
        return ()  # a fault already
    answer: Callable[[Destination], Told] | None = getattr(module, question, None)
    # A destination that was faulty before it became its type's struct has nothing to ask about.
    return answer(destination) if answer is not None and isinstance(destination, module.Settings) else ()


@cache
def _module(name: str) -> _Module:
    if name in OURS:
        return cast(_Module, import_module(f"dispatcher.destinations.{name}"))
    if name not in _others():
        raise UnknownKind
    try:
        module = _others()[name]()
    except Exception as fault:  # whatever somebody else's package does at its import
        raise UnknownKind(f"can't be loaded: {type(fault).__name__}: {fault}") from fault
    struct, maker = getattr(module, "Settings", None), getattr(module, "make", None)
    if not (isinstance(struct, type) and issubclass(struct, Destination) and callable(maker)):
        raise UnknownKind("can't be loaded: its module needs Settings, which extends Destination, and make")
    return cast(_Module, module)


@cache
def _others() -> dict[str, Callable[[], object]]:
    return {point.name: point.load for point in entry_points(group=GROUP)}

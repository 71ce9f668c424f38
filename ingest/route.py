"""Which destinations an alert goes to: the configured routes, compiled once.

Takes settings, then alerts; returns names of destinations. The first route that matches wins unless it
says `continue`; without any routes every alert goes everywhere; one that none matches goes nowhere (and
is refused by receive). Raises nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct
from msgspec.structs import replace

from common.alert import Alert
from common.settings import Match, Route, Settings

Allowed = Collection[str | None]


class Looked(Struct, frozen=True):
    """A route that an alert was held against; `field` is the first that does not fit, "" when all do.

    `told` is what the alert has there, `wanted` what would have been right.
    """

    index: int
    to: tuple[str, ...]
    goes_on: bool
    field: str = ""
    told: str | None = None
    wanted: tuple[str, ...] = ()


class Router:
    """The routes of one configuration."""

    def __init__(self, settings: Settings) -> None:
        self._order = {destination.name: place for place, destination in enumerate(settings.destinations)}
        self._routes = [
            (_fields(route.match), _labels(route.match), tuple(route.to), route.continue_)
            for route in settings.routes or _everywhere(settings)
        ]

    def destinations(self, alert: Alert) -> tuple[str, ...]:
        """Names in the order of the file's destinations, none twice."""
        chosen: list[str] = []
        for fields, labels, to, goes_on in self._routes:
            if _matches(alert, fields, labels):
                chosen += to
                if not goes_on:
                    break
        if len(chosen) < 2:
            return tuple(chosen)
        return tuple(sorted(set(chosen), key=lambda name: self._order.get(name, len(self._order))))

    def looked_at(self, alert: Alert) -> list[Looked]:
        """The routes up to the one that ends it, and why not: for people."""
        found: list[Looked] = []
        for index, (fields, labels, to, goes_on) in enumerate(self._routes):
            found.append(_look(Looked(index, to, goes_on), alert, fields, labels))
            if not found[-1].field and not goes_on:
                break
        return found


def _everywhere(settings: Settings) -> list[Route]:
    names = [destination.name for destination in settings.destinations]
    return [Route(to=names)] if names else []


def _matches(alert: Alert, fields: list[tuple[str, Allowed]], labels: list[tuple[str, Allowed]]) -> bool:
    for field, allowed in fields:
        if getattr(alert, field) not in allowed:
            return False
    # a label that is absent is one that is empty
    return not labels or all(alert.labels.get(label, "") in allowed for label, allowed in labels)


def _look(
    route: Looked, alert: Alert, fields: list[tuple[str, Allowed]], labels: list[tuple[str, Allowed]]
) -> Looked:
    told = [(field, getattr(alert, field), allowed) for field, allowed in fields]
    told += [(f"labels.{label}", alert.labels.get(label, ""), allowed) for label, allowed in labels]
    for field, value, allowed in told:
        if value not in allowed:
            wanted = tuple(sorted(text or "" for text in allowed))
            return replace(route, field=field, told=value or None, wanted=wanted)
    return route


def _fields(match: Match) -> list[tuple[str, Allowed]]:
    told = ((field, getattr(match, field)) for field in ("severity", "name", "host", "status", "source"))
    return [(field, _any_of(allowed)) for field, allowed in told if allowed is not None]


def _labels(match: Match) -> list[tuple[str, Allowed]]:
    return [(label, _any_of(allowed)) for label, allowed in match.labels.items()]


def _any_of(allowed: str | list[str]) -> Allowed:
    return frozenset([allowed] if isinstance(allowed, str) else allowed)

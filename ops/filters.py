"""The options by which dead letters are chosen, the same for every command of `redispatch dead`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click
from msgspec import Struct

from common.outcomes import Reason
from common.units import Duration
from ops import completion
from ops.letters import Wanted

F = TypeVar("F", bound=Callable[..., Any])

ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


class Ago(Struct, frozen=True):
    """A time relative to the server's clock."""

    duration: Duration


class Moment(click.ParamType):  # type: ignore[type-arg]  # generic in newer click only
    """`2h` (ago) or an RFC 3339 time: an Ago, or ms since the epoch."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Ago | int:
        """What the text says, or the command's error."""
        if isinstance(value, Ago | int):
            return value
        try:
            return Ago(Duration.parse(value))
        except ValueError:
            pass  # then it is a time
        try:
            told = datetime.fromisoformat(value)
            if told.tzinfo is not None:
                return int(told.timestamp() * 1000)
        except ValueError:
            pass  # then it is neither
        return self.fail(
            f"{value!r}: expected a duration such as 2h, or a time such as 2026-01-31T09:00:00Z", param, ctx
        )


class Id(click.ParamType):  # type: ignore[type-arg]  # as above
    """The id of a stream's entry."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The id, or the command's error."""
        if not ID.fullmatch(value):
            self.fail(
                f"{value!r}: expected an id such as 1764438120042-0, as `dead list` shows it", param, ctx
            )
        return str(value)


class Chosen(Struct, frozen=True):
    """What the options say, before the server's clock is known."""

    destinations: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    key: str | None = None
    since: Ago | int | None = None
    until: Ago | int | None = None
    limit: int | None = None
    ids: tuple[str, ...] = ()

    def wanted(self, now: int) -> Wanted:
        """The same at `now`, the server's time in ms."""
        return Wanted(
            reasons=frozenset(self.reasons),
            key=self.key,
            since=at(self.since, now),
            until=at(self.until, now),
            ids=self.ids,
            limit=self.limit,
        )


def filters(limit: int | None, most: int | None = None) -> Callable[[F], F]:
    """The options, named as the fields of Chosen are: a command makes `Chosen(**asked)` of them.

    `limit` is the default of --limit, `most` what it may be.
    """
    options = (
        click.option(
            "--destination",
            "-d",
            "destinations",
            multiple=True,
            metavar="DEST",
            shell_complete=completion.destinations,
            help="Only of this destination; may be repeated.",
        ),
        click.option(
            "--reason",
            "reasons",
            multiple=True,
            type=click.Choice([reason.value for reason in Reason]),
            metavar="REASON",
            help=f"Only for this reason; may be repeated. One of {', '.join(Reason)}.",
        ),
        click.option("--key", metavar="KEY", help="Only with this key; * and ? stand for any characters."),
        click.option("--since", type=Moment(), help="Died since then: 2h (ago), or an RFC 3339 time."),
        click.option("--until", type=Moment(), help="Died until then, likewise."),
        click.option(
            "--limit",
            type=click.IntRange(1, most),
            default=limit,
            show_default=limit is not None,
            help="So many at most, the oldest of each destination first.",
        ),
    )

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def at(told: Ago | int | None, now: int) -> int | None:
    """The same in ms, when the server's time is `now`."""
    return max(0, now - told.duration.ms) if isinstance(told, Ago) else told

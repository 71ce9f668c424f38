"""`GET /v1/alerts/{key}`: what has become of one alert, from its records at all destinations.

Beside the way: reads only. Takes a key; returns a Receipt, or None when no destination knows it. Raises what
redis-py raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, get_args

from aiohttp import web
from msgspec import Struct
from redis import exceptions as errors

from common import keys
from common.http import Problem, Request, answer, encode
from common.record import Record, parse
from common.trouble import Kind, kind_of
from common.wire import Command, Wire

ROUTE = "/v1/alerts/{key}"
MOST = 1000  # destinations; those beyond were removed long ago, if there ever were so many
_KEY = re.compile(r"[A-Za-z0-9_:~-]{1,512}")  # one with a summary's name at its end is above 255

State: TypeAlias = Literal["queued", "in_flight", "retrying", "delivered", "dead"]
_STATES: dict[str, State] = {state: state for state in get_args(State)}


class Place(Struct, frozen=True):
    """One destination; `status` and `error` of the last attempt, `next_at` when another is due."""

    name: str
    state: State
    attempts: int
    status: int | None
    error: str | None
    first_at: datetime
    last_at: datetime
    next_at: datetime | None


class Receipt(Struct, frozen=True):
    """One alert at all destinations that know it."""

    key: str
    destinations: list[Place]


class Receipts:
    """Receipts of one namespace; `configured` are the destinations' names, each asked in any case."""

    def __init__(
        self,
        wire: Wire,
        namespace: str,
        configured: Iterable[str],
        troubled: Callable[[Kind], None] = lambda kind: None,
    ) -> None:
        self._wire = wire
        self._namespace = namespace
        self._known = list(configured)  # and those that were seen in the set
        self._troubled = troubled

    async def receipt(self, request: Request) -> web.StreamResponse:
        """The handler."""
        key = request.path.rpartition("/")[2]
        if not _KEY.fullmatch(key):
            raise Problem(404, "this is no key: keys are letters, digits, and - _ : ~")
        try:
            found = await self.find(key)
        except errors.RedisError as fault:
            kind = kind_of(fault)
            self._troubled(kind)
            raise Problem(503, f"Redis could not tell: {kind}", headers={"Retry-After": "1"}) from fault
        if found is None:
            raise Problem(404, "no destination knows this key; it is forgotten, or was never there")
        return answer(request, 200, encode(found))

    async def find(self, key: str) -> Receipt | None:
        """Two round trips when a destination has come since the last call, else one.

        Plain GETs, since the records of different destinations are in different slots of a Cluster.
        """
        members = ("SMEMBERS", keys.destinations(self._namespace))
        asked = list(self._known)
        names, *records = await self._ask([members, *self._gets(asked, key)])
        fresh = sorted({name.decode() for name in names} - set(asked))[: MOST - len(asked)]
        if fresh:
            records += await self._ask(self._gets(fresh, key))
            self._known = asked + fresh
        told = zip(asked + fresh, records, strict=True)
        places = [_place(name, parse(record)) for name, record in told if record is not None]
        return Receipt(key, places) if places else None

    def _gets(self, names: Iterable[str], key: str) -> list[Command]:
        return [("GET", keys.record(self._namespace, name, key)) for name in names]

    async def _ask(self, commands: list[Command]) -> list[Any]:
        replies = await self._wire.pipeline(commands)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies


def _place(name: str, record: Record) -> Place:
    return Place(
        name=name,
        state=_STATES[record.state],
        attempts=record.attempts,
        status=record.status,
        error=record.error or None,
        first_at=_moment(record.first_at),
        last_at=_moment(record.last_at),
        next_at=_moment(record.next_at) if record.next_at else None,
    )


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)

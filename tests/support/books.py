"""Puts deliveries and dead letters where the scripts would have put them, with the ledger exact.

Synchronous, for tests of commands, which run an event loop of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import redis

from common import keys
from tests.support.servers import Server

AT = 1_764_438_120_042  # 2025-11-29T17:42:00.042Z
NAMESPACE = "redispatch"
Link: TypeAlias = Any  # a redis.Redis, whose commands are annotated for sync and async at once


class Book:
    """One destination on one server."""

    def __init__(self, link: Link, name: str = "pager") -> None:
        self.link = link
        self.name = name
        self.at = keys.Destination(NAMESPACE, name)
        link.sadd(keys.destinations(NAMESPACE), name)

    def die(self, count: int = 1, *, at: int | None = None, **fields: str | bytes) -> list[str]:
        """Dead letters, died now or at that time (ms, rising); their ids. Fields replace the defaults."""
        given = {
            "key": "db1:disk:1",
            "reason": "attempts",
            "error": "HTTP 503",
            "status": "503",
            "attempts": "8",
            "deliveries": "8",
            "first_at": str(AT),
            "died_at": str(at or AT),
            "alert": b'{"incident":"db1:disk","host":"db1","name":"disk","timestamp":1764438120042,"v":1}',
            **fields,
        }
        pipeline = self.link.pipeline(transaction=False)
        for n in range(count):
            pipeline.xadd(self.at.dead, given, id="*" if at is None else f"{at}-{n}")
        pipeline.hincrby(self.at.ledger, "accepted", count)
        pipeline.hincrby(self.at.ledger, "died", count)
        return [entry_id.decode() for entry_id in pipeline.execute()[:count]]

    def wait(self, count: int = 1) -> None:
        """Deliveries that nobody has read yet."""
        for _ in range(count):
            self.link.xadd(self.at.stream, {"key": "k", "alert": "{}", "attempt": "0", "first_at": str(AT)})
        self.link.hincrby(self.at.ledger, "accepted", count)

    def entries(self) -> list[dict[bytes, bytes]]:
        """What is in the stream."""
        return [fields for _, fields in self.link.xrange(self.at.stream)]

    def dead(self) -> list[str]:
        """Ids of the dead letters."""
        return [entry_id.decode() for entry_id, _ in self.link.xrange(self.at.dead)]

    def counter(self, name: str) -> int:
        """One number of the ledger."""
        return int(self.link.hget(self.at.ledger, name) or 0)

    def unaccounted(self) -> tuple[int, int]:
        """Both differences of the ledger, counted here and not by what is tested."""
        ended = sum(map(self.counter, ("delivered", "duplicate", "superseded", "died", "lost")))
        depth = self.link.xlen(self.at.stream) + self.link.zcard(self.at.retry)
        first = self.counter("accepted") + self.counter("replayed") - ended - depth
        gone = self.counter("replayed") + self.counter("discarded") + self.link.xlen(self.at.dead)
        return first, self.counter("died") - gone


@contextmanager
def link(server: Server) -> Iterator[Link]:
    """A synchronous client."""
    client = redis.Redis(host=server.host, port=server.port, protocol=2)
    try:
        yield client
    finally:
        client.close()

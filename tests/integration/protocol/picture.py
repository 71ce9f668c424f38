"""What is in Redis about one destination, read in one pipeline: the truth that the model is held against."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct
from redis.asyncio import Redis

from common.keys import GROUP, Destination
from common.record import Record, parse
from common.snapshot import Ledger
from common.states import State

NAMESPACE = "redispatch"
_COMMANDS = 6  # per destination, before its records
_OBJECT = re.compile(rb"\xa6object\xd9 ([0-9a-f]{32})")  # as cmsgpack has it in a member of `retry`


class Picture(Struct, frozen=True, kw_only=True):
    """`entries`, `dead` map ids to keys; `pending` ids to consumer and count, None without a group."""

    entries: dict[str, str]
    retry: dict[bytes, float]
    dead: dict[str, str]
    ledger: Ledger
    pending: dict[str, tuple[str, int]] | None
    records: dict[str, Record | None]
    listed: set[str]  # objects that the scripts list
    referred: set[str]  # those that something refers to

    @property
    def depth(self) -> int:
        """Deliveries that have not ended."""
        return len(self.entries) + len(self.retry)

    @property
    def missing(self) -> int:
        """The first difference of the ledger."""
        return self.ledger.missing(self.depth)

    @property
    def missing_dead(self) -> int:
        """The second one."""
        return self.ledger.missing_dead(len(self.dead))

    def state(self, key: str) -> State:
        """Where the key's record stands."""
        record = self.records[key]
        return State.ABSENT if record is None else record.state


async def look(redis: Redis, names: list[str], keys: list[str]) -> dict[str, Picture]:
    """A picture of each destination, with the records of these keys."""
    pipeline = redis.pipeline(transaction=False)
    for name in names:
        at = Destination(NAMESPACE, name)
        pipeline.execute_command("XRANGE", at.stream, "-", "+")
        pipeline.execute_command("ZRANGE", at.retry, 0, -1, "WITHSCORES")
        pipeline.execute_command("XRANGE", at.dead, "-", "+")
        pipeline.execute_command("HGETALL", at.ledger)
        pipeline.xpending_range(at.stream, GROUP, "-", "+", 1000)
        pipeline.execute_command("SMEMBERS", at.objects)
        for key in keys:
            pipeline.execute_command("GET", at.record(key))
    replies = await pipeline.execute(raise_on_error=False)
    width = _COMMANDS + len(keys)
    return {name: _picture(replies[n * width : (n + 1) * width], keys) for n, name in enumerate(names)}


def _picture(replies: list[Any], keys: list[str]) -> Picture:
    entries, retry, dead, ledger, pending, listed, *records = replies
    gone = isinstance(pending, Exception)  # NOGROUP
    return Picture(
        entries={i.decode(): _fields(e)["key"] for i, e in _rows(entries)},
        retry={member: float(score) for member, score in _rows(retry)},
        dead={i.decode(): _fields(e)["key"] for i, e in _rows(dead)},
        ledger=Ledger.of(_fields(ledger)),
        pending=None if gone else {p["message_id"].decode(): _owner(p) for p in pending},
        records={key: None if text is None else parse(text) for key, text in zip(keys, records, strict=True)},
        listed={name.decode() for name in listed},
        referred={
            *(
                told["object"]
                for _, flat in (*_rows(entries), *_rows(dead))
                if "object" in (told := _fields(flat))
            ),
            *(found[1].decode() for member, _ in _rows(retry) if (found := _OBJECT.search(member))),
        },
    )


def _owner(pending: dict[str, Any]) -> tuple[str, int]:
    return pending["consumer"].decode(), pending["times_delivered"]


def _rows(reply: Any) -> list[tuple[bytes, Any]]:
    """Pairs, whether the client has made them or not."""
    if isinstance(reply, dict):
        return list(reply.items())
    if reply and not isinstance(reply[0], list | tuple):
        return list(zip(reply[::2], reply[1::2], strict=True))
    return [(first, second) for first, second in reply]


def _fields(flat: Any) -> dict[str, str]:
    return {name.decode(): value.decode("utf-8", "replace") for name, value in _rows(flat)}

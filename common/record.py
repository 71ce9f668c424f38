"""A delivery's record as the scripts write it: read here, for receipts and for tests.

One line of words: state, entry id, delivery count, consumer, attempts, status, first_at, last_at, next_at
(ms), the error's text, and in 16 characters the hash of the content. `-` stands for none.
"""

from __future__ import annotations

from msgspec import Struct

from common.states import State

UNKNOWN = "-" * 16  # content of a record that was gone when its entry was claimed


class Record(Struct, frozen=True):
    """What is known of one delivery; times in ms, `next_at` 0 when nothing is due."""

    state: State
    entry_id: str
    deliveries: int
    consumer: str | None
    attempts: int
    status: int | None
    first_at: int
    last_at: int
    next_at: int
    content: str | None
    error: str


def parse(stored: bytes) -> Record:
    """Read a record. Raises ValueError when it is none."""
    words = stored.decode("utf-8", "replace").split(" ", 9)
    if len(words) != 10:
        raise ValueError(f"not a record: {stored!r}")
    error, _, content = words[9].rpartition(" ")
    return Record(
        state=State(words[0]),
        entry_id=words[1],
        deliveries=int(words[2]),
        consumer=None if words[3] == "-" else words[3],
        attempts=int(words[4]),
        status=None if words[5] == "-" else int(words[5]),
        first_at=int(words[6]),
        last_at=int(words[7]),
        next_at=int(words[8]),
        content=None if content == UNKNOWN else content,
        error=error,
    )

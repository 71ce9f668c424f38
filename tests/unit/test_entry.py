"""Entries that others wrote: each is a delivery or malformed, and nothing else comes of it."""

from __future__ import annotations

import pytest

from common.alert import Malformed
from dispatcher.entry import MOST_FIELDS, Entry, known, read

ALERT = b'{"incident":"web-1:disk","host":"web-1","name":"disk","timestamp":1772439277000}'
FIELDS = {b"key": b"k", b"alert": ALERT, b"attempt": b"2", b"first_at": b"1772439277000"}
MANY = {b"%d" % n: b"x" for n in range(MOST_FIELDS)}


def test_what_append_wrote() -> None:
    delivery = read(Entry("1-0", FIELDS))
    assert (delivery.key, delivery.attempt, delivery.first_at) == ("k", 3, 1_772_439_277_000)


@pytest.mark.parametrize(
    "fields",
    [
        {b"attempt": b"1" * 5000},
        {b"attempt": b"-1"},
        {b"first_at": b"1" * 5000},
        {b"first_at": b"1" * 400},
        {b"first_at": b""},
        {b"reason": b"banana"},
        {b"reason": b"\xff"},
        {b"key": b"\xff"},
        {b"key": b""},
        {b"replay_of": b"\xff"},
        {b"alert": b""},
        {b"alert": b"[" * 100_000},
        MANY,
    ],
)
def test_what_nobody_can_read_is_malformed(fields: dict[bytes, bytes]) -> None:
    entry = Entry("1-0", {**FIELDS, **fields})
    with pytest.raises(Malformed):
        read(entry)
    assert entry.attempts in (0, 2)


def test_a_reason_to_wait_for_is_readable() -> None:
    assert read(Entry("1-0", {**FIELDS, b"reason": b"max_age"})).key == "k"


def test_what_waits_to_die_leaves_foreign_fields_behind() -> None:
    assert known(Entry("1-0", {**FIELDS, **MANY})) == FIELDS

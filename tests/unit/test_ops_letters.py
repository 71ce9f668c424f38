"""Choosing, batching, pacing and showing dead letters, without a server."""

from __future__ import annotations

import asyncio
import io
import json

import click
import msgspec
import pytest
from rich.console import Console

from common.units import Duration
from ops.filters import Ago, Chosen, Moment
from ops.letters import Letter, Wanted, whole
from ops.move import BATCH, BATCH_BYTES, Pace, split
from ops.show import as_text, table
from ops.text import age, count, moment


def letter(entry_id: str = "1000-0", **fields: bytes) -> Letter:
    given = {"key": b"db1:disk:1", "reason": b"attempts", "alert": b"{}", **fields}
    return Letter("pager", entry_id, {name.encode(): value for name, value in given.items()})


@pytest.mark.parametrize(
    ("wanted", "admitted"),
    [
        (Wanted(), True),
        (Wanted(reasons=frozenset({"attempts", "rejected"})), True),
        (Wanted(reasons=frozenset({"rejected"})), False),
        (Wanted(key="db1:disk:1"), True),
        (Wanted(key="db1:*:?"), True),
        (Wanted(key="DB1:*"), False),
        (Wanted(since=1000, until=1000), True),
        (Wanted(since=1001), False),
        (Wanted(until=999), False),
        (Wanted(key="db1:*", reasons=frozenset({"rejected"})), False),
    ],
)
def test_all_that_is_given_must_hold(wanted: Wanted, admitted: bool) -> None:
    assert wanted.admits(letter()) is admitted


def test_batches_are_bounded_in_number_and_bytes() -> None:
    small = [letter(f"{n}-0") for n in range(2 * BATCH + 1)]
    assert [len(ids) for ids in split(small, BATCH)] == [BATCH, BATCH, 1]
    assert [each for ids in split(small, 7) for each in ids] == [one.id for one in small]
    large = [letter(f"{n}-0", alert=b"x" * (BATCH_BYTES // 2 - 100)) for n in range(3)]
    assert [len(ids) for ids in split(large, BATCH)] == [2, 1]
    huge = [letter(f"{n}-0", alert=b"x" * 2 * BATCH_BYTES) for n in range(2)]
    assert [len(ids) for ids in split(huge, BATCH)] == [1, 1]
    assert list(split([], BATCH)) == []


@pytest.mark.parametrize(("rate", "batch"), [(None, BATCH), (0.5, 1), (50, 5), (1e6, BATCH)])
def test_a_slow_pace_has_small_batches(rate: float | None, batch: int) -> None:
    assert Pace(rate).batch == batch


async def test_a_pace_ends_when_told_to_stop() -> None:
    stop = asyncio.Event()
    waiting = asyncio.create_task(Pace(1e-6).wait(1, stop))
    stop.set()
    await asyncio.wait_for(waiting, 10)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2h", Ago(Duration(7200))),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:01.5+01:00", 1500),
    ],
)
def test_times(text: str, expected: object) -> None:
    assert Moment().convert(text, None, None) == expected


@pytest.mark.parametrize("text", ["", "soon", "2026-01-31", "2026-01-31T09:00:00", "11y"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected a duration such as 2h"):
        Moment().convert(text, None, None)


def test_ago_is_before_the_servers_now() -> None:
    ago = Moment().convert("2s", None, None)
    wanted = Chosen(since=ago, until=5000).wanted(10_000)
    assert (wanted.since, wanted.until) == (8000, 5000)
    assert Chosen(since=ago).wanted(1000).since == 0


def test_json_of_what_is_not_as_ours() -> None:
    told = json.loads(msgspec.json.encode(whole(letter(status=b"?", attempts=b"", first_at=b"9" * 30))))
    assert (told["status"], told["attempts"], told["first_at"]) == (None, 0, "9" * 30)
    deep = b"[" * 100_000
    assert whole(letter(alert=deep))["alert"] == deep.decode()
    assert "[[[" in as_text(letter(alert=deep))


@pytest.mark.parametrize("width", [30, 50, 66, 80])
def test_the_list_fits(width: int) -> None:
    out = io.StringIO()
    letters = [letter("1764438120042-0"), letter("1764438120042-1", key=b"k" * 255, status=b"503")]
    Console(file=out, width=width).print(table(letters))
    lines = out.getvalue().split("\n")
    assert max(map(len, lines)) <= width
    assert ("destination" in out.getvalue()) is (width >= 66)
    assert "1764438120042-1" in out.getvalue()
    assert out.getvalue().count("k") >= 255


def test_a_trace_is_there_when_the_alert_came_with_one() -> None:
    context = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert whole(letter(trace=context))["trace"] == context.decode()
    assert "trace" not in whole(letter())


def test_words_for_people() -> None:
    assert [age(seconds) for seconds in (None, 0, 119, 120, 7199, 7200, 86400, 172800, -3)] == [
        *("-", "0s", "119s", "2m", "119m", "2h", "24h", "2d", "0s")
    ]
    assert count(1, "delivery", "deliveries") == "1 delivery"
    assert count(0, "dead letter") == "0 dead letters"
    assert moment(1_764_438_120_042) == "2025-11-29T17:42:00.042Z"

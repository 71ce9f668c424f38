"""What came of a chaos run: the table for people, and what must not be.

Takes a Result; `faults` returns a sentence for each thing that is off, `table` what is printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct
from rich import box
from rich.table import Table

from benchmarks.verdict import Answer, Cause, count
from common.snapshot import Snapshot

SHOWN = 5  # examples of one fault


class Result(Struct, frozen=True, kw_only=True):
    """`ledgers` are by when they were looked at, in order, the last one at the end; `wrong` are sentences."""

    alerts: int
    acknowledged: int
    repeats: int
    met: Counter[str]
    requests: int
    delivered: int
    lost: Sequence[str]
    dead: Counter[str]
    duplicates: Sequence[tuple[Answer, Answer, Cause]]
    kills: int
    restarts: int
    looks: int
    ledgers: dict[str, Snapshot]
    wrong: Sequence[str]
    seconds: float


def faults(result: Result) -> list[str]:
    """Empty when the run proved what it should."""
    end = list(result.ledgers.values())[-1]
    missing = result.alerts - result.acknowledged
    checks = (
        (result.lost, f"{len(result.lost)} acknowledged alerts never got a 2xx: {_some(result.lost)}"),
        (missing, f"{missing} alerts were not acknowledged"),
        (not result.kills, "no dispatcher was killed"),
        (not result.restarts, "the server was not restarted"),
        (end.depth, f"{end.depth} deliveries are still waiting"),
        (end.dead_letters, f"{end.dead_letters} dead letters are left"),
        (end.unaccounted, f"the ledger has {end.unaccounted} unaccounted deliveries"),
        (end.ledger.lost, f"the ledger has {end.ledger.lost} lost deliveries"),
        (
            end.ledger.accepted != result.alerts,
            f"the ledger accepted {end.ledger.accepted} deliveries of {result.alerts} alerts",
        ),
    )
    return [text for off, text in checks if off] + list(_unexplained(result)) + list(result.wrong)


def _unexplained(result: Result) -> Iterator[str]:
    for first, second, cause in result.duplicates:
        if cause is Cause.UNEXPLAINED:
            yield (
                f"unexplained duplicate of {first.key}: {first.worker} got {first.status} for attempt "
                f"{first.attempt} {second.came - first.done:.3f} s before {second.worker} sent attempt "
                f"{second.attempt}"
            )


def table(result: Result) -> Table:
    """All numbers of the run."""
    made = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in _rows(result):
        made.add_row(name, str(value))
    return made


def _rows(result: Result) -> Iterator[tuple[str, object]]:
    others = Counter(result.met)
    yield "alerts posted", f"{result.alerts}, and {result.repeats} of them once more"
    yield "acknowledged", result.acknowledged
    yield "503 met by senders", others.pop("503", 0)
    yield "connections lost by senders", _by_kind(others)
    yield "delivered (distinct)", result.delivered
    yield "lost", len(result.lost)
    yield "dead letters (replayed)", _by_kind(result.dead)
    yield "attempts", result.requests
    yield "duplicates", len(result.duplicates)
    causes = count(result.duplicates)
    for cause in Cause:
        yield f"  {cause.name.lower()}", f"{causes[cause]:<6} {cause.value}"
    yield "dispatchers killed", f"{result.kills}, each at work"
    yield "server killed and restarted", result.restarts
    yield "ledger looked at", f"{result.looks} times"
    for when, seen in result.ledgers.items():
        yield f"ledger {when}", _ledger(seen)
    yield "seconds", f"{result.seconds:.1f}"


def _ledger(seen: Snapshot) -> str:
    ledger = seen.ledger
    return (
        f"accepted {ledger.accepted}, replayed {ledger.replayed}, delivered {ledger.delivered}, "
        f"duplicate {ledger.duplicate}, died {ledger.died}, lost {ledger.lost}, depth {seen.depth}, "
        f"unaccounted {seen.unaccounted}"
    )


def _by_kind(counted: Counter[str]) -> str:
    kinds = ", ".join(f"{name} {number}" for name, number in counted.most_common())
    return f"{counted.total()} ({kinds})" if kinds else "0"


def _some(keys: Sequence[str]) -> str:
    return ", ".join(keys[:SHOWN]) + (", ..." if len(keys) > SHOWN else "")

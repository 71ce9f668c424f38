"""Rules, compiled: which of them a reading meets, and the alert that comes of it. Pure.

Takes settings, then readings. A rule without `clear` needs nothing but the reading; one with `clear` gives
a `Judgement`, and which episode it belongs to is known to `evaluate` only. Raises ValueError for a
condition that is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from common.alert import Alert, Status
from common.condition import Condition
from common.settings import Rule
from ingest import identity
from ingest.event import Event, Reading, Source

Number = int | float
LONGEST_SUMMARY = 65_536
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


class Verdict(StrEnum):
    """What a reading means for a rule with `clear`; in between nothing changes."""

    FIRES = "fires"
    CLEARS = "clears"
    BETWEEN = "between"


class Judgement(Struct, frozen=True):
    """A reading met a rule; `event(start, ended)` makes the alert once its episode is known."""

    rule: Rule
    reading: Reading
    verdict: Verdict
    incident: str

    def event(self, start: int | None = None, ended: int | None = None) -> Event:
        """Firing, or resolved when `ended` is told; times in ms."""
        rule, reading = self.rule, self.reading
        return Event(
            Alert(
                incident=self.incident,
                host=reading.host,
                name=rule.name,
                status=Status.FIRING if ended is None else Status.RESOLVED,
                severity=rule.severity,
                summary=None if rule.summary is None else render(rule.summary, reading),
                value=reading.value,
                labels=reading.labels,
                timestamp=reading.timestamp,
                starts_at=start,
                ends_at=ended,
                source=Source.READING.value,
            )
        )


class _Compiled:
    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.when = Condition.parse(rule.when)
        self.clear = None if rule.clear is None else Condition.parse(rule.clear)
        self.labels = tuple(rule.labels.items())

    def verdict(self, reading: Reading) -> Verdict | None:
        """None: the rule has nothing to say about it."""
        if any(reading.labels.get(label, "") != value for label, value in self.labels):
            return None
        if self.when.holds(reading.value):
            return Verdict.FIRES
        if self.clear is None:
            return None
        return Verdict.CLEARS if self.clear.holds(reading.value) else Verdict.BETWEEN


class Rules:
    """The rules of one configuration."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._by_metric: dict[str, list[_Compiled]] = {}
        for rule in rules:
            self._by_metric.setdefault(rule.metric, []).append(_Compiled(rule))

    def judge(self, reading: Reading) -> list[Judgement]:
        """In the order of the file."""
        found = []
        for compiled in self._by_metric.get(reading.metric, ()):
            verdict = compiled.verdict(reading)
            if verdict is not None:
                rule = compiled.rule
                incident = identity.incident(reading.host, rule.name, reading.labels, rule.by)
                found.append(Judgement(rule, reading, verdict, incident))
        return found


def render(summary: str, reading: Reading) -> str:
    """The text with `{host} {metric} {value}` and label names replaced; what is unknown stays as it is."""
    told = {
        **reading.labels,
        "host": reading.host,
        "metric": reading.metric,
        "value": _plain(reading.value),
    }
    return _PLACEHOLDER.sub(lambda found: told.get(found[1], found[0]), summary)[:LONGEST_SUMMARY]


def _plain(value: Number) -> str:
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value) if whole else value)

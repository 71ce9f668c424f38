"""The lines that the log has for deliveries: one per attempt, one for what dies without any. Beside decide.

Takes values, writes to the log; raises nothing. Storms are kept short (`common/storm.py`): each outcome at
each destination has a bucket of its own, which is asked before anything is put together.
"""

from __future__ import annotations

from common import trace
from common.log import Log
from common.outcomes import Dead, Decision, Delivered, Later, Outcome, OutcomeKind, Reason
from common.storm import ERROR, INFO, WARNING, storms
from dispatcher.destinations.base import Delivery
from dispatcher.entry import Entry

log = Log("dispatcher")


class Teller:
    """Of one destination, in one replica whose name is `consumer`."""

    def __init__(self, destination: str, consumer: str) -> None:
        self._names = {"destination": destination}
        self._consumer = consumer
        self._attempts = {
            kind: storms.kind("attempt", _level(kind), destination=destination, outcome=kind.value)
            for kind in OutcomeKind
        }
        self._deaths = {
            reason: storms.kind("dead", WARNING, destination=destination, reason=reason.value)
            for reason in Reason
        }
        self._bugs = storms.kind("attempt_broke", ERROR, destination=destination)

    def attempt(
        self,
        delivery: Delivery,
        outcome: Outcome,
        decision: Decision,
        seconds: float,
        now: int,
        members: int = 1,
    ) -> None:
        """One attempt has ended, of `members` in one request; `now` is the server's time in ms."""
        kind = outcome.kind
        if not self._attempts[kind].admits():
            return
        fields: dict[str, object] = {
            **self._names,
            **_who(delivery),
            "attempt": delivery.attempt,
            "outcome": kind,
            "status": outcome.status,
            "error": outcome.error or None,
            "seconds": round(seconds, 6),
            **_decided(decision),
            "members": members if members > 1 else None,
            "consumer": self._consumer,
        }
        if isinstance(decision, Delivered):
            fields["end_to_end"] = round((now - delivery.first_at) / 1000, 3)
        log.write(_level(kind), "attempt", fields)

    def died(self, entry: Entry, delivery: Delivery | None, dead: Dead) -> None:
        """A delivery is given up without an attempt just now."""
        if not self._deaths[dead.reason].admits():
            return
        known = {"key": entry.key} if delivery is None else _who(delivery)
        told = {"status": dead.status, "error": dead.error or None, "consumer": self._consumer}
        log.write(WARNING, "dead", {**self._names, **known, "entry": entry.id, "reason": dead.reason, **told})

    def broke(self, delivery: Delivery, bug: Exception) -> None:
        """A kind of destination has a bug."""
        if self._bugs.admits():
            log.error("attempt_broke", fault=bug, **self._names, **_who(delivery))


def _level(kind: OutcomeKind) -> int:
    return INFO if kind is OutcomeKind.DELIVERED else WARNING


def _who(delivery: Delivery) -> dict[str, object]:
    told: dict[str, object] = {"key": delivery.key, "incident": delivery.alert.incident}
    return told if delivery.trace is None else {**told, "trace": trace.trace_id(delivery.trace)}


def _decided(decision: Decision) -> dict[str, object]:
    match decision:
        case Delivered():
            return {"decision": "delivered"}
        case Later(delay, spends):
            return {"decision": "later", "delay": round(delay, 3), "spends": spends}
        case Dead(reason):
            return {"decision": "dead", "reason": reason}

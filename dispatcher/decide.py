"""What follows from an attempt: takes its Outcome and the destination's policy, returns a Decision.

Stands between deliver and settle, and before deliver: `needless` says what is not to be tried any more. Pure:
time and randomness are handed in. Raises nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from common.outcomes import Dead, Decision, Delivered, Later, Outcome, OutcomeKind, Reason
from common.policy import Policy
from dispatcher.destinations.base import Delivery
from dispatcher.entry import Entry

_RETRY_AFTER_LEAST = 1.0  # seconds
_SPLITS = frozenset((OutcomeKind.REJECTED, OutcomeKind.RENDER))


def decide(
    outcome: Outcome,
    attempt: int,
    first_at: int,
    now: int,
    policy: Policy,
    retry_after_cap: float,
    random: Callable[[], float],
    throttles: int = 0,
) -> Decision:
    """Deliver, wait or give up.

    `attempt` is the number of the attempt that was made, 1 for the first; `first_at` and `now` are ms,
    `retry_after_cap` seconds, `random` gives numbers in [0, 1); `throttles` counts the refusals with
    Retry-After in a row, this one included.
    """
    if outcome.kind is OutcomeKind.DELIVERED:
        return Delivered(outcome.status)
    wait = random() * policy.ceiling(attempt)
    unspent = is_patient(outcome, throttles, policy)
    match outcome.kind:
        case OutcomeKind.REJECTED | OutcomeKind.RENDER:
            return _dead(Reason(outcome.kind), outcome)
        case OutcomeKind.GONE:
            last = Reason.REJECTED
        case OutcomeKind.REFUSED:
            last = Reason.REFUSED
        case OutcomeKind.FAILED | OutcomeKind.TIMEOUT | OutcomeKind.CONNECTION:
            last = Reason.ATTEMPTS
        case OutcomeKind.THROTTLED:
            last = Reason.ATTEMPTS
            wait += asked_for(outcome.retry_after, retry_after_cap)
        case _:
            assert_never(outcome.kind)
    if attempt >= policy.attempts and not unspent:
        return _dead(last, outcome)
    if now + wait * 1000 > first_at + policy.max_age.ms:
        return _dead(Reason.MAX_AGE, outcome)
    return Later(wait, spends=not unspent, status=outcome.status, error=outcome.error)


def needless(entry: Entry, delivery: Delivery, now: int, policy: Policy, max_deliveries: int) -> Dead | None:
    """Why a claimed delivery is given up without an attempt, if it is; `now` in ms."""
    if entry.deliveries > max_deliveries:
        return Dead(Reason.MAX_DELIVERIES, error=f"handed out {entry.deliveries - 1} times without an end")
    waiting = entry.fields.get(b"reason")  # for room among the dead letters
    if waiting is not None:
        status, error = entry.fields.get(b"status", b""), entry.fields.get(b"error", b"")
        told = int(status) if status.isdigit() and len(status) == 3 else None
        return Dead(Reason(waiting.decode()), told, error.decode("utf-8", "replace"))
    if now - delivery.first_at > policy.max_age.ms:
        return Dead(Reason.MAX_AGE, error=f"older than {policy.max_age}")
    return None


def split(outcome: Outcome) -> Later | None:
    """What follows for each member of a batch that was refused for good, since one may be the reason: it goes
    alone, at once and unspent. None for any other outcome."""
    if outcome.kind not in _SPLITS:
        return None
    return Later(0, spends=False, status=outcome.status, error=outcome.error, alone=True)


def is_patient(outcome: Outcome, throttles: int, policy: Policy) -> bool:
    """Whether a destination that says when to come back is believed: the delivery waits unspent, and the gate
    closes for as long. Not any more after as many refusals in a row as there are attempts."""
    return (
        outcome.kind is OutcomeKind.THROTTLED
        and outcome.retry_after is not None
        and throttles <= policy.attempts
    )


def asked_for(retry_after: float | None, cap: float) -> float:
    """Seconds that a destination asked for, within 1 s and the cap; 0 when it did not."""
    return 0.0 if retry_after is None else min(cap, max(_RETRY_AFTER_LEAST, retry_after))


def _dead(reason: Reason, outcome: Outcome) -> Dead:
    return Dead(reason, outcome.status, outcome.error)

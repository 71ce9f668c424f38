"""What a chaos run proved: which alerts are lost, and why each duplicate came about.

Pure: takes the receiver's Answers, the times of kills and outages (monotonic seconds) and what the workers
said in their logs; returns causes. A cause is found for a 2xx answer that was followed by another one: why
it did not end its delivery.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise

from msgspec import Struct

SETTLING = 1.0  # seconds after an answer in which its worker may not have settled it yet; 0.24 was seen
RECOVERY = 2.0  # seconds after an outage in which the workers may not have found their server yet


class Answer(Struct, frozen=True, kw_only=True):
    """One request and what it got; `arrived` unless it could not be written, or nobody was there any more."""

    key: str
    worker: str
    attempt: int
    status: int
    came: float
    done: float
    arrived: bool

    @property
    def good(self) -> bool:
        """Whether it was a 2xx."""
        return 200 <= self.status < 300


class Cause(StrEnum):
    """Why a 2xx answer was followed by another."""

    UNHEARD = "the answer came too late, or nobody was there to take it"
    BROKEN = "its worker lost the answer, says its log"
    KILLED = "its worker was killed before it could settle"
    OUTAGE = "the server was away before it was settled"
    UNEXPLAINED = "UNEXPLAINED"


class Events(Struct, frozen=True, kw_only=True):
    """What was done to the processes; `unanswered` is (worker, key, attempt) as the workers logged them."""

    timeout: float
    killed: Mapping[str, float]
    outages: Sequence[tuple[float, float]]
    unanswered: frozenset[tuple[str, str, int]] = frozenset()


def cause(answer: Answer, following: Answer, events: Events) -> Cause:
    """Why `answer` did not end the delivery, so that `following` came."""
    killed = events.killed.get(answer.worker)
    if killed is not None and killed <= answer.done:
        return Cause.KILLED
    if not answer.arrived or answer.done - answer.came >= events.timeout:
        return Cause.UNHEARD
    if (answer.worker, answer.key, answer.attempt) in events.unanswered:
        return Cause.BROKEN
    if killed is not None and killed <= answer.done + SETTLING:
        return Cause.KILLED
    settled = min(answer.done + SETTLING, following.done)
    if any(down <= settled and answer.came <= up + RECOVERY for down, up in events.outages):
        return Cause.OUTAGE
    return Cause.UNEXPLAINED


def duplicates(answers: Iterable[Answer], events: Events) -> list[tuple[Answer, Answer, Cause]]:
    """Each 2xx beyond the first of its key: the one before it, itself, and the cause. By time of arrival."""
    by_key: defaultdict[str, list[Answer]] = defaultdict(list)
    for answer in sorted(answers, key=lambda answer: answer.came):
        if answer.good:
            by_key[answer.key].append(answer)
    return [
        (first, second, cause(first, second, events))
        for own in by_key.values()
        for first, second in pairwise(own)
    ]


def count(found: Iterable[tuple[Answer, Answer, Cause]]) -> Counter[Cause]:
    """How many of each cause."""
    return Counter(why for _, _, why in found)


def lost(acknowledged: Iterable[str], answers: Iterable[Answer]) -> list[str]:
    """Acknowledged keys that never got a 2xx."""
    return sorted(set(acknowledged) - {answer.key for answer in answers if answer.good})

"""The life of a delivery's record: states, events and the moves between them, as a table.

`docs/states.md` is drawn from here. A move that is not in the table raises: the scripts make the moves, and
the tests hold every move they see against it.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """What the record says."""

    ABSENT = "absent"
    QUEUED = "queued"
    IN_FLIGHT = "in_flight"
    RETRYING = "retrying"
    DELIVERED = "delivered"
    DEAD = "dead"


# Who moves a state on, and what a crash leaves behind.
MEANING = {
    State.ABSENT: "Nothing is known of the key, or its record has expired. Append moves it on.",
    State.QUEUED: "The entry is in the stream. A claim moves it on; a crash leaves it, unread or pending.",
    State.IN_FLIGHT: "A consumer has claimed the entry. Its settlement moves it on; a crash leaves it "
    "pending, and the next reclaim takes it after the visibility timeout.",
    State.RETRYING: "The delivery waits in `retry`, or has just come back from there. "
    "A claim moves it on, or `retire` when its destination was removed; a crash leaves nothing.",
    State.DELIVERED: "The destination has it, or a later resolution made it needless. "
    "Only a forced replay moves it on.",
    State.DEAD: "It was given up and is among the dead letters. A replay puts it into the stream again, "
    "and the claim of that entry moves it on.",
}


class Event(StrEnum):
    """What happens to a delivery."""

    APPEND = "append"
    REFUSE = "append, queue full"
    APPEND_AGAIN = "append, its entry has vanished"
    CLAIM = "claim"
    CLAIM_FORCED = "claim, forced"
    DELIVER = "settle delivered"
    SUPERSEDE = "settle superseded"
    WAIT = "settle later"
    DIE = "settle dead"
    RETIRE = "retire"
    EXPIRE = "TTL"


TABLE: dict[tuple[State, Event], State] = {
    (State.ABSENT, Event.APPEND): State.QUEUED,
    (State.ABSENT, Event.REFUSE): State.DEAD,
    (State.QUEUED, Event.APPEND_AGAIN): State.QUEUED,
    (State.IN_FLIGHT, Event.APPEND_AGAIN): State.QUEUED,
    (State.QUEUED, Event.REFUSE): State.DEAD,
    (State.IN_FLIGHT, Event.REFUSE): State.DEAD,
    (State.ABSENT, Event.CLAIM): State.IN_FLIGHT,
    (State.QUEUED, Event.CLAIM): State.IN_FLIGHT,
    (State.RETRYING, Event.CLAIM): State.IN_FLIGHT,
    (State.IN_FLIGHT, Event.CLAIM): State.IN_FLIGHT,
    (State.DEAD, Event.CLAIM): State.IN_FLIGHT,
    (State.DELIVERED, Event.CLAIM_FORCED): State.IN_FLIGHT,
    (State.IN_FLIGHT, Event.DELIVER): State.DELIVERED,
    (State.IN_FLIGHT, Event.SUPERSEDE): State.DELIVERED,
    (State.IN_FLIGHT, Event.WAIT): State.RETRYING,
    (State.QUEUED, Event.WAIT): State.RETRYING,
    (State.IN_FLIGHT, Event.DIE): State.DEAD,
    (State.QUEUED, Event.DIE): State.DEAD,
    **{(state, Event.RETIRE): State.DEAD for state in (State.QUEUED, State.IN_FLIGHT, State.RETRYING)},
    **{(state, Event.EXPIRE): State.ABSENT for state in State if state is not State.ABSENT},
}


class NoSuchMove(Exception):
    """The table has no such move."""


def move(state: State, event: Event) -> State:
    """The state after the event. Raises NoSuchMove."""
    try:
        return TABLE[state, event]
    except KeyError:
        raise NoSuchMove(f"{event} in state {state}") from None

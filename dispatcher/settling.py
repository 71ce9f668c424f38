"""A settlement under way: what settle and the gate are told of one entry; between decide and settle."""

from __future__ import annotations

from msgspec import Struct

from common.outcomes import OutcomeKind, Settlement
from dispatcher.destinations.base import Delivery
from dispatcher.entry import Entry


class Attempt(Struct, frozen=True):
    """What was tried: what it came to, and how long it took, seconds.

    `throttles` counts the refusals with Retry-After in a row, this one included, 0 after any other outcome;
    `closes` is for how many seconds it closes the gate, 0 when it does not. `shared`: the request was that of
    the settlement before it, too.
    """

    kind: OutcomeKind
    seconds: float
    throttles: int = 0
    closes: float = 0.0
    shared: bool = False


class Settling(Struct, frozen=True):
    """One settlement under way. `delivery` is None for an entry that nobody here can read, `attempt` for
    one that was not tried; `probe` is set on the one that was taken behind a gate whose time is over."""

    entry: Entry
    delivery: Delivery | None
    settlement: Settlement
    claimed: bool
    attempt: Attempt | None = None
    probe: bool = False

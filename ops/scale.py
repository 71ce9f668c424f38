"""What a rate of alerts needs: `redispatch check --rate`. Pure arithmetic on what was measured once.

Takes the settings and alerts per second; returns a Need. The figures are those of docs/scaling.md, which says
how they came about; on another machine they are others, in about the same proportion.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from msgspec import Struct

from common.policy import record_ttl, retry_policy
from common.settings import Settings
from common.units import Rate, Size
from ops.text import count

# Microseconds of one core per alert: of ingest; of dispatcher and server per destination it goes to.
INGEST, DISPATCHER, SERVER = 180, 270, 100
WAITING, REMEMBERED, INCIDENT = 270, 225, 150  # bytes of the server's memory, per delivery and per alert
BUSY = 0.6  # of a core; the rest is for bursts, and for what others had when one is gone
ATTEMPT = 0.1  # seconds: what a receiver is assumed to take
FEWEST = 2  # of each service, so that one may be gone


class Need(Struct, frozen=True):
    """`nodes` are primaries; `memory` is what remembering takes, bytes; `slots` are attempts under way at
    each destination, in all replicas together; `one` is what one node does for one destination, alerts/s.
    """

    rate: float
    destinations: int
    ingest: int
    dispatchers: int
    nodes: int
    memory: int
    slots: int
    one: int


def need(settings: Settings, rate: Rate) -> Need:
    """When every alert goes to every destination."""
    count = len(settings.destinations)
    core = BUSY * 1e6
    return Need(
        rate=float(rate),
        destinations=count,
        ingest=max(FEWEST, ceil(rate * INGEST / core)),
        dispatchers=max(FEWEST, ceil(rate * count * DISPATCHER / core)),
        nodes=max(1, ceil(rate * count * SERVER / core)),
        memory=int(rate * remembered(settings)),
        slots=ceil(rate * ATTEMPT),
        one=int(core / SERVER),
    )


def remembered(settings: Settings) -> float:
    """Bytes of the server's memory, for one alert a second that goes to every destination."""
    longest = [record_ttl(retry_policy(each), settings.dedupe.remember) for each in settings.destinations]
    return REMEMBERED * sum(longest) + INCIDENT * settings.dedupe.remember


def told(settings: Settings, needed: Need) -> Iterator[str]:
    """For people, a line each."""
    yield (
        f"at {needed.rate:,.0f} alerts/s to each of {needed.destinations}: {needed.ingest} ingest, "
        f"{needed.dispatchers} dispatchers, {needed.nodes} Redis (primaries), "
        f"{readable(needed.memory)} to remember (dedupe.remember, retry.max_age)"
    )
    per_replica = ceil(needed.slots / needed.dispatchers)
    small = [each.name for each in settings.destinations if each.max_in_flight < per_replica]
    yield (
        f"receivers that take {ATTEMPT * 1000:.0f} ms need {count(needed.slots, 'attempt')} under way at "
        f"each, max_in_flight {per_replica} per dispatcher"
        + (f": less at {', '.join(small)}" if small else "")
    )
    slow = [each.name for each in settings.destinations if each.rate is not None and each.rate < needed.rate]
    if slow:
        yield f"{', '.join(slow)}: rate is lower than that, the queue grows until it is full; see batch"
    if needed.rate > needed.one:
        yield (
            f"one destination is in one Redis, which does about {needed.one:,}/s: "
            "spread alerts over several destinations of the same kind by routes"
        )


def readable(size: float) -> str:
    """Bytes; three digits are more than an estimate is worth."""
    unit = next((unit for unit in (1024**3, 1024**2) if size >= unit), 1024)
    return str(Size(max(1, round(size / unit)) * unit))

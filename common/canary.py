"""Canaries: beside each destination one of their own, in its slot and with keys of its own.

Takes settings; returns those by which ingest appends canaries and the dispatcher takes them, so that both do
it with the code of real alerts (docs/decisions/0094-canary.md). Raises nothing.
"""

from __future__ import annotations

from msgspec.structs import replace

from common.settings import Breaker, Dedupe, Destination, Queue, Retry, Settings
from common.units import Duration

INCIDENT = "canary"  # no sender's has this form: every other one has a colon
STALE = Duration(300)  # seconds after which a canary is of no use any more, and after which it is forgotten
TIMEOUT = Duration(10)  # seconds that one attempt waits for the destination's own lane
_SUFFIX = "/canary"  # no name in a configuration has a slash
_ENDLESS = 1_000_000_000

# At most one is under way per destination: the next one is refused while its predecessor has not arrived, and
# nothing of a canary ever becomes a dead letter.
_QUEUE = Queue(max_depth=1, max_dead=0)
# after failure    1     2     3  and so on, until it is stale
#   waits up to   1s    2s    4s    5s
_RETRY = Retry(attempts=_ENDLESS, base=Duration(1), cap=Duration(5), max_age=STALE)


def is_one(name: str) -> bool:
    """Whether that is the name of a canary's destination."""
    return name.endswith(_SUFFIX)


def beside(name: str) -> str:
    """The name of the destination whose way that canary goes."""
    return name.removesuffix(_SUFFIX)


def canaries(settings: Settings) -> Settings:
    """The same, with canaries as the destinations; with none when they are off."""
    every = settings.canary.every
    return replace(
        settings,
        destinations=_destinations(settings) if every is not None else [],
        routes=[],
        queue=_QUEUE,
        dedupe=Dedupe(window=every or Dedupe().window, remember=STALE),
        dispatcher=replace(settings.dispatcher, max_deliveries=_ENDLESS),
    )


def _destinations(settings: Settings) -> list[Destination]:
    return [
        Destination(
            name=f"{each.name}{_SUFFIX}",
            type="canary",
            timeout=TIMEOUT,
            max_in_flight=1,
            retry=_RETRY,
            breaker=Breaker(failures=_ENDLESS),
        )
        for each in settings.destinations
    ]

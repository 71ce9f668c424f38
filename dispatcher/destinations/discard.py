"""Takes every delivery and keeps none: for measuring, and for routes that are meant to end."""

from __future__ import annotations

from common.outcomes import Outcome, OutcomeKind
from common.settings import Destination
from dispatcher.destinations.base import Delivery

_DELIVERED = Outcome(OutcomeKind.DELIVERED)


class Settings(Destination, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Has nothing of its own."""


class Discard:
    """The destination that always says yes."""

    def deliver(self, delivery: Delivery) -> Outcome:
        """Delivered, always the same value."""
        return _DELIVERED

    async def close(self) -> None:
        """Nothing to let go of."""


def make(destination: Settings) -> Discard:
    """The destination; it has no settings of its own."""
    return Discard()

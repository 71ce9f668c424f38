"""Posts to PagerDuty's Events API v2: a firing triggers, a resolution resolves what the firing triggered.

Takes a delivery, returns an Outcome. What PagerDuty's answers mean follows from their status: 202 it has the
event, 400 it never will, 429 and 5xx try again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Meta

from common.faults import Path
from common.outcomes import Outcome, OutcomeKind
from common.units import Rate, Secret
from dispatcher.destinations import http_settings
from dispatcher.destinations.base import Delivery, Request, Unrenderable, Unusable
from dispatcher.destinations.http_settings import Http
from dispatcher.destinations.pagerduty_event import event
from dispatcher.destinations.payload import RENDER_FAULTS
from dispatcher.destinations.post import Poster

__all__ = ["PagerDuty", "Settings", "faults", "make", "warnings"]

_KEY = 32  # characters of an integration key


class Settings(Http, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A service or an orchestration of PagerDuty, through its Events API v2."""

    url: Annotated[
        Secret | None,
        Meta(description="where events go; https://events.pagerduty.com/v2/enqueue when absent"),
    ] = Secret("https://events.pagerduty.com/v2/enqueue")
    routing_key: Annotated[Secret, Meta(description="the integration key")]
    rate: Annotated[
        Rate | None,
        Meta(description="events per second for the whole fleet; PagerDuty takes about 120 a minute"),
    ] = Rate(2)


class PagerDuty:
    """The destination that sends events. Raises ValueError for settings that can't be used."""

    def __init__(self, destination: Settings) -> None:
        self._routing_key = destination.routing_key.reveal()
        self._poster = Poster(destination, hide=[self._routing_key])
        self.target = self._poster.target

    def request(self, deliveries: Sequence[Delivery]) -> Request:
        """The event of the one delivery. Raises Unrenderable."""
        (delivery,) = deliveries
        try:
            return Request({}, event(delivery.key, delivery.alert, self._routing_key))
        except RENDER_FAULTS as fault:
            raise Unrenderable(str(fault)) from fault

    async def deliver(self, delivery: Delivery) -> Outcome:
        """One attempt, over within the destination's timeout."""
        try:
            request = self.request([delivery])
        except Unrenderable as fault:
            return Outcome(OutcomeKind.RENDER, error=f"the event can't be built: {fault}")
        return await self._poster.post(request.body, request.headers)

    async def close(self) -> None:
        """Close the connections; attempts under way fail."""
        await self._poster.close()


def faults(destination: Settings) -> Iterator[tuple[Path, str]]:
    """What is wrong beyond types."""
    yield from http_settings.faults(destination)
    if not destination.routing_key.reveal().strip():
        yield ("routing_key",), "is empty"


def warnings(destination: Settings) -> Iterator[tuple[Path, str]]:
    """What may be meant and often is not."""
    yield from http_settings.warnings(destination)
    if len(destination.routing_key.reveal()) != _KEY:
        yield ("routing_key",), f"does not have the {_KEY} characters of an integration key"


def make(destination: Settings) -> PagerDuty:
    """The destination. Raises Unusable for an address or a header that can't be used."""
    try:
        return PagerDuty(destination)
    except ValueError as fault:
        raise Unusable(f"destination {destination.name}: {fault}") from None

"""Posts to a Slack channel through an incoming webhook, and to what speaks like one.

Takes deliveries, one or a batch for one message, returns an Outcome. Slack answers `ok` when it took one;
anything else in a 2xx means that it did not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from common.faults import Path
from common.outcomes import Outcome, OutcomeKind
from common.units import Rate
from dispatcher.destinations import http_settings
from dispatcher.destinations.base import Delivery, Request, Unrenderable, Unusable
from dispatcher.destinations.http_settings import Http, warnings
from dispatcher.destinations.payload import RENDER_FAULTS
from dispatcher.destinations.post import Answer, Poster
from dispatcher.destinations.slack_message import batch_message, message

__all__ = ["BATCHES", "Settings", "Slack", "faults", "make", "warnings"]

BATCHES = True
_encode = msgspec.json.Encoder().encode


class Settings(Http, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An incoming webhook of Slack; its url is a secret."""

    rate: Annotated[
        Rate | None, Meta(description="messages per second for the whole fleet; Slack takes one")
    ] = Rate(1)


class Slack:
    """The destination that posts messages. Raises ValueError for settings that can't be used."""

    def __init__(self, destination: Settings) -> None:
        self._poster = Poster(destination)
        self.target = self._poster.target

    def request(self, deliveries: Sequence[Delivery]) -> Request:
        """The message of one alert, or of several. Raises Unrenderable."""
        alerts = [delivery.alert for delivery in deliveries]
        try:
            return Request({}, _encode(message(alerts[0]) if len(alerts) == 1 else batch_message(alerts)))
        except RENDER_FAULTS as fault:
            raise Unrenderable(f"the message can't be built: {fault}") from fault

    async def deliver(self, delivery: Delivery) -> Outcome:
        """One attempt, over within the destination's timeout."""
        return await self.deliver_batch([delivery])

    async def deliver_batch(self, deliveries: Sequence[Delivery]) -> Outcome:
        """One attempt for all of them, in one message."""
        try:
            request = self.request(deliveries)
        except Unrenderable as fault:
            return Outcome(OutcomeKind.RENDER, error=str(fault))
        answered = await self._poster.exchange(request.body, request.headers)
        return answered if isinstance(answered, Outcome) else self._outcome(answered)

    async def close(self) -> None:
        """Close the connections; attempts under way fail."""
        await self._poster.close()

    def _outcome(self, answered: Answer) -> Outcome:
        status, said = answered.status, answered.body.strip()
        if not 200 <= status < 300 or (answered.whole and said == b"ok"):
            return self._poster.classify(answered)
        if not answered.whole and b"ok".startswith(said):
            return Outcome(OutcomeKind.FAILED, status, f"HTTP {status}, but the answer broke off before `ok`")
        told = self._poster.excerpt(answered) or "nothing"
        return Outcome(OutcomeKind.REJECTED, status, f"HTTP {status}, but not `ok`; it said: {told}")


def faults(destination: Settings) -> Iterator[tuple[Path, str]]:
    """What is wrong beyond types."""
    yield from http_settings.faults(destination)


def make(destination: Settings) -> Slack:
    """The destination. Raises Unusable for an address or a header that can't be used."""
    try:
        return Slack(destination)
    except ValueError as fault:
        raise Unusable(f"destination {destination.name}: {fault}") from None

"""Posts to a Slack channel through an incoming webhook, and to what speaks like one.

Takes deliveries, one or a batch for one message, returns an Outcome. Slack answers `ok` when it took one;
anything else in a 2xx means that it did not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from common.faults import Path
from common.outcomes import Outcome, OutcomeKind
from common.units import Rate, Secret
from dispatcher.destinations import http_settings, trial
from dispatcher.destinations.base import Delivery, Request, Unrenderable, Unusable
from dispatcher.destinations.http_settings import Http, warnings
from dispatcher.destinations.payload import RENDER_FAULTS, in_order
from dispatcher.destinations.post import Answer, Poster
from dispatcher.destinations.slack_message import batch_message, harmless, message, text_message
from dispatcher.destinations.template import Template, names_of

__all__ = ["BATCHES", "Settings", "Slack", "faults", "make", "warnings"]

BATCHES = True
_encode = msgspec.json.Encoder().encode


class Settings(Http, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An incoming webhook of Slack; its url is a secret."""

    rate: Annotated[
        Rate | None, Meta(description="messages per second for the whole fleet; Slack takes one")
    ] = Rate(1)
    template: Annotated[
        Secret | None,
        Meta(description="what makes the text, in Jinja and Slack's markup; what alerts say is escaped"),
    ] = None


class Slack:
    """The destination that posts messages. Raises ValueError for settings that can't be used."""

    def __init__(self, destination: Settings) -> None:
        self._template = destination.template and Template(destination.template.reveal())
        self._poster = Poster(destination)
        self.target = self._poster.target

    def request(self, deliveries: Sequence[Delivery]) -> Request:
        """The message of one alert, or of several, the oldest event first. Raises Unrenderable."""
        try:
            return Request({}, _encode(self._message(in_order(deliveries))))
        except RENDER_FAULTS as fault:
            raise Unrenderable(str(fault)) from fault

    async def deliver(self, delivery: Delivery) -> Outcome:
        """One attempt, over within the destination's timeout."""
        return await self.deliver_batch([delivery])

    async def deliver_batch(self, deliveries: Sequence[Delivery]) -> Outcome:
        """One attempt for all of them, in one message."""
        try:
            request = self.request(deliveries)
        except Unrenderable as fault:
            return Outcome(OutcomeKind.RENDER, error=f"the message can't be built: {fault}")
        answered = await self._poster.exchange(request.body, request.headers)
        return answered if isinstance(answered, Outcome) else self._outcome(answered)

    async def close(self) -> None:
        """Close the connections; attempts under way fail."""
        await self._poster.close()

    def _message(self, deliveries: Sequence[Delivery]) -> dict[str, Any]:
        if self._template:
            return text_message(self._template.render(harmless(names_of(deliveries))))
        alerts = [delivery.alert for delivery in deliveries]
        return message(alerts[0]) if len(alerts) == 1 else batch_message(alerts)

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
    if destination.template is not None:
        batches = destination.batch is not None
        fault = trial.fault(destination.template.reveal(), batches=batches, look=trial.text_fault)
        if fault is not None:
            yield ("template",), fault


def make(destination: Settings) -> Slack:
    """The destination. Raises Unusable for an address, a header or a template that can't be used."""
    try:
        return Slack(destination)
    except ValueError as fault:
        raise Unusable(f"destination {destination.name}: {fault}") from None

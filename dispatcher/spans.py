"""What an attempt is in its alert's trace: another span id, and a span where OpenTelemetry is asked for them.

Beside deliver. Takes deliveries that go as one request; returns them as their destination sees them, and the
span to be ended with the outcome, if there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from common import trace
from common.keys import GROUP
from common.outcomes import Outcome, OutcomeKind
from dispatcher.destinations.base import Delivery

if TYPE_CHECKING:
    from common.otel import Span, Telemetry


class Attempted:
    """A span under way."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def end(self, outcome: Outcome) -> None:
        """Its outcome; of an error the kind alone, since a receiver's words may be anything."""
        self._span.tell({"redispatch.outcome": outcome.kind.value})
        if outcome.status is not None:
            self._span.tell({"http.response.status_code": outcome.status})
        if outcome.kind is not OutcomeKind.DELIVERED:
            self._span.fail(outcome.kind.value)
        self._span.end()


class Spans:
    """Those of one destination, in one replica whose name is `consumer`."""

    def __init__(self, destination: str, consumer: str, telemetry: Telemetry | None) -> None:
        self.telemetry = telemetry
        self._name = f"deliver {destination}"
        self._always: dict[str, str | int] = {
            "messaging.system": "redis",
            "messaging.operation.name": "deliver",
            "messaging.operation.type": "process",
            "messaging.destination.name": destination,
            "messaging.consumer.group.name": GROUP,
            "messaging.client.id": consumer,
        }

    def begin(self, deliveries: Sequence[Delivery]) -> tuple[list[Delivery], Attempted | None]:
        """An attempt for all of them begins."""
        parent = trace.shared(delivery.trace for delivery in deliveries)
        span = None if self.telemetry is None else self._span(self.telemetry, deliveries, parent)
        if span is not None:
            context: str | None = span.context
        else:
            context = None if parent is None else trace.child(parent)
        sent = [each if each.trace == context else replace(each, trace=context) for each in deliveries]
        return sent, None if span is None else Attempted(span)

    def _span(self, telemetry: Telemetry, deliveries: Sequence[Delivery], parent: str | None) -> Span | None:
        from common.otel import CONSUMER  # it is there, since there is a Telemetry

        if len(deliveries) == 1:
            more: dict[str, str | int] = {
                "messaging.message.id": deliveries[0].key,
                "redispatch.attempt": deliveries[0].attempt,
            }
            links: list[str] = []
        else:
            more = {"messaging.batch.message_count": len(deliveries)}
            links = [delivery.trace for delivery in deliveries if delivery.trace]
        return telemetry.span(self._name, CONSUMER, {**self._always, **more}, parent, links)

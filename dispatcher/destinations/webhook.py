"""Delivers as a Standard Webhook: renders, names and signs; the rest is `post`'s.

Takes a Delivery, or several as a batch, returns an Outcome. A delivery keeps its `webhook-id`, the key, over
all attempts; a batch keeps one that its members' keys make.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

from msgspec import Meta, field
from msgspec.structs import replace

from common import trace
from common.faults import Path
from common.outcomes import Outcome, OutcomeKind
from common.units import Secret
from common.webhook_parts import secret_fault, signing_key
from dispatcher.destinations import compose, http_settings
from dispatcher.destinations.base import Delivery, Request, Unrenderable, Unusable
from dispatcher.destinations.http_settings import Http
from dispatcher.destinations.payload import RENDER_FAULTS, batch_id, in_order
from dispatcher.destinations.post import Poster
from dispatcher.destinations.signing import signature

__all__ = ["BATCHES", "Settings", "Webhook", "faults", "make", "warnings"]

BATCHES = True
_SHORT_SECRET = 32  # characters after whsec_: Standard Webhooks asks for 24 bytes, which is 32 of base64


class Settings(Http, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A receiver of Standard Webhooks."""

    secrets: Annotated[list[Secret], Meta(description="signing secrets, newest first; each signs")] = field(
        default_factory=list
    )
    template: Annotated[
        Secret | None, Meta(description="what makes the body, in Jinja; see docs/templates.md")
    ] = None


class Webhook:
    """The destination that posts. Raises ValueError for settings that can't be used."""

    def __init__(self, destination: Settings, clock: Callable[[], float] = time.time) -> None:
        self._keys = _keys(destination)
        self._clock = clock
        self._composer = compose.Composer(destination.template, destination.headers)
        always = replace(destination, headers=compose.fixed(destination.headers))
        self._poster = Poster(always, hide=_hidden(destination), clock=clock)
        self.target = self._poster.target

    async def deliver(self, delivery: Delivery) -> Outcome:
        """One attempt, over within the destination's timeout."""
        return await self.deliver_batch((delivery,))

    async def deliver_batch(self, deliveries: Sequence[Delivery]) -> Outcome:
        """One attempt for all of them together."""
        try:
            request = self.request(deliveries)
        except Unrenderable as fault:
            return Outcome(OutcomeKind.RENDER, error=f"the request can't be built: {fault}")
        return await self._poster.post(request.body, request.headers)

    def request(self, deliveries: Sequence[Delivery]) -> Request:
        """What is sent now, the oldest event first. Raises Unrenderable."""
        if len(deliveries) == 1:
            name = deliveries[0].key
        else:
            name = batch_id(each.key for each in deliveries)
            deliveries = in_order(deliveries)
        try:
            body, headers = self._composer.compose(deliveries)
            named = trace.headers(deliveries[0].trace)
            return Request(headers | named | self._headers(name, body), body)
        except RENDER_FAULTS as fault:
            raise Unrenderable(str(fault)) from fault

    async def close(self) -> None:
        """Close the connections; attempts under way fail."""
        await self._poster.close()

    def _headers(self, name: str, body: bytes) -> dict[str, str]:
        if not (name and name.isascii() and name.isprintable()):
            raise ValueError("the key does not fit into a header")
        now = int(self._clock())
        headers = {"webhook-id": name, "webhook-timestamp": str(now)}
        if self._keys:
            headers["webhook-signature"] = signature(self._keys, name, now, body)
        return headers


def faults(destination: Settings) -> Iterator[tuple[Path, str]]:
    """What is wrong beyond types."""
    yield from http_settings.faults(destination)
    for index, secret in enumerate(destination.secrets):
        if fault := secret_fault(secret):
            yield ("secrets", index), fault
    batches = destination.batch is not None
    yield from compose.faults(destination.template, destination.headers, batches)


def warnings(destination: Settings) -> Iterator[tuple[Path, str]]:
    """What may be meant and often is not."""
    yield from http_settings.warnings(destination)
    if not destination.secrets:
        yield ("secrets",), "none: its requests are not signed"
    for index, secret in enumerate(destination.secrets):
        if len(secret.reveal().removeprefix("whsec_")) < _SHORT_SECRET:
            yield ("secrets", index), "is short; Standard Webhooks asks for 24 random bytes or more"


def make(destination: Settings) -> Webhook:
    """The destination. Raises Unusable for an address, a header or a secret that can't be used."""
    try:
        return Webhook(destination)
    except ValueError as fault:
        raise Unusable(f"destination {destination.name}: {fault}") from None


def _keys(destination: Settings) -> list[bytes]:
    keys = []
    for index, secret in enumerate(destination.secrets):
        try:
            keys.append(signing_key(secret))
        except ValueError as fault:
            raise ValueError(f"secrets[{index}]: {fault}") from None
    return keys


def _hidden(destination: Settings) -> set[str]:
    texts = {secret.reveal() for secret in destination.secrets}
    return texts | {text.removeprefix("whsec_") for text in texts}

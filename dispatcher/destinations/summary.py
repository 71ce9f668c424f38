"""Has a model summarise alerts, and passes them on with what it said.

Takes a Delivery, returns an Outcome whose `then` is the same alert with two annotations more and a key of its
own. When the model fails for good a plain summary goes on instead, so that what comes after never waits for a
model in vain.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterator, Sequence
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, field
from msgspec.structs import replace

from common.alert import Alert, Status
from common.bounded import bounded
from common.faults import Path
from common.outcomes import Outcome, OutcomeKind
from common.settings import Breaker, Count, Name, Retry
from common.units import Duration, Secret
from common.webhook_parts import header_fault
from dispatcher.destinations import http_settings, prompt, trial
from dispatcher.destinations.base import Delivery, Request, Unrenderable, Unusable
from dispatcher.destinations.completion import NoText, text_of
from dispatcher.destinations.http_settings import Http, warnings
from dispatcher.destinations.http_settings import Status as HttpStatus
from dispatcher.destinations.payload import RENDER_FAULTS
from dispatcher.destinations.post import Answer, Poster
from dispatcher.destinations.template import Template
from dispatcher.destinations.wording import SEVERITIES

__all__ = ["Settings", "Summary", "faults", "make", "warnings"]

TEXT, BY = "ai_summary", "ai_summary_by"  # the annotations
PLAIN = "plain"  # what BY says of a summary that no model wrote
READ = 2**20  # bytes of an answer

_PATH = "/chat/completions"
_AMBIGUOUS = re.compile(r"resolved|r?[0-9]+|" + "|".join(SEVERITIES))  # what keys may end in anyway
_encode = msgspec.json.Encoder().encode


class Tries(Retry, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How hard a model is tried: a plain summary in time is worth more than one that comes late."""

    preset: Annotated[Literal["page", "webhook"], Meta(description="where the other four come from")] = "page"
    attempts: Annotated[Count | None, Meta(description="failures before a plain summary goes on")] = 4
    max_age: Annotated[Duration | None, Meta(description="a plain one goes on when older than this")] = (
        Duration(600)
    )


class Settings(Http, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model behind an OpenAI-compatible API; `/chat/completions` is appended to its url."""

    model: Annotated[str, Meta(min_length=1, max_length=255, description="its name there")]
    then: Annotated[list[Name], Meta(min_length=1, description="destinations that get the summarised alerts")]
    prompt: Annotated[
        str | None, Meta(description="template of what is asked; the alert as JSON when absent")
    ] = None
    max_tokens: Annotated[Count, Meta(description="of one summary")] = 300
    api_key: Annotated[Secret | None, Meta(description="sent as Authorization: Bearer")] = None
    resolutions: Annotated[
        Literal["plain", "model", "none"],
        Meta(description="summarised plainly, by the model, or not passed on at all"),
    ] = "plain"
    timeout: Annotated[Duration, Meta(description="for one call, in all")] = Duration(60)
    max_in_flight: Annotated[Count, Meta(description="calls under way per replica")] = 4
    retry: Annotated[
        Tries, Meta(description="preset page, 4 attempts and max_age 10m, unless it says otherwise")
    ] = Tries()
    retry_after_cap: Annotated[Duration, Meta(description="longest Retry-After that is honoured")] = Duration(
        60
    )
    breaker: Annotated[Breaker, Meta(description="1000 failures when absent: as good as never")] = Breaker(
        failures=1000
    )
    gate_on: Annotated[list[HttpStatus], Meta(description="statuses that close the gate (none)")] = field(
        default_factory=list
    )

    @property
    def follow_ups(self) -> Sequence[str]:
        """Names of the destinations that get the summarised alerts."""
        return self.then


class Summary:
    """The destination that summarises. Raises ValueError for settings that can't be used."""

    def __init__(self, destination: Settings) -> None:
        self._settings = destination
        self._template = _template(destination)
        key = destination.api_key
        headers = {} if key is None else {"authorization": f"Bearer {key.reveal()}"}
        at = replace(destination, url=_endpoint(destination))
        self._poster = Poster(at, headers=headers, hide=[key.reveal()] if key else [], read=READ)
        self.target = self._poster.target

    def deliver(self, delivery: Delivery) -> Outcome | Awaitable[Outcome]:
        """One attempt, over within the destination's timeout; at once for what no model is asked about."""
        if delivery.alert.status is Status.RESOLVED and self._settings.resolutions != "model":
            return self._plainly(delivery, None)
        return self._ask(delivery)

    def instead(self, delivery: Delivery, outcome: Outcome) -> Outcome:
        """What goes on when the model has failed for good."""
        return self._plainly(delivery, outcome.status)

    def request(self, deliveries: Sequence[Delivery]) -> Request:
        """What the model is sent about one alert. Raises Unrenderable."""
        (delivery,) = deliveries
        try:
            chat = prompt.messages(delivery, self._template)
        except RENDER_FAULTS as fault:
            raise Unrenderable(f"the prompt can't be built: {fault}") from fault
        told = self._settings
        body = {"model": told.model, "messages": chat, "max_tokens": told.max_tokens, "stream": False}
        return Request({}, _encode(body))

    async def close(self) -> None:
        """Close the connections; attempts under way fail."""
        await self._poster.close()

    async def _ask(self, delivery: Delivery) -> Outcome:
        try:
            request = self.request([delivery])
        except Unrenderable as fault:
            return Outcome(OutcomeKind.RENDER, error=str(fault))
        answered = await self._poster.exchange(request.body, request.headers)
        if isinstance(answered, Outcome):
            return answered
        if not 200 <= answered.status < 300:
            return self._poster.classify(answered)
        return self._read(delivery, answered)

    def _read(self, delivery: Delivery, answered: Answer) -> Outcome:
        status = answered.status
        if not answered.whole:
            limit = f"{READ // 2**20} MiB and {self._settings.timeout}"
            return Outcome(
                OutcomeKind.FAILED, status, f"HTTP {status}, but the answer did not end within {limit}"
            )
        try:
            text = text_of(answered.body)
        except NoText as fault:
            said = self._poster.excerpt(answered) or "nothing"
            return Outcome(
                OutcomeKind.FAILED, status, f"HTTP {status}, but the answer {fault}; it said: {said}"
            )
        return Outcome(OutcomeKind.DELIVERED, status, then=self._made(delivery, text, self._settings.model))

    def _plainly(self, delivery: Delivery, status: int | None) -> Outcome:
        alert = delivery.alert
        if alert.status is Status.RESOLVED and self._settings.resolutions == "none":
            return Outcome(OutcomeKind.DELIVERED, status)
        return Outcome(OutcomeKind.DELIVERED, status, then=self._made(delivery, prompt.plain(alert), PLAIN))

    def _made(self, delivery: Delivery, text: str, by: str) -> Alert:
        """The same for each copy of a delivery but for the text, so that only one of them gets through."""
        alert = delivery.alert
        annotations = {**alert.annotations, TEXT: text, BY: by}
        return replace(alert, key=bounded(f"{delivery.key}:{self._settings.name}"), annotations=annotations)


def faults(destination: Settings) -> Iterator[tuple[Path, str]]:
    """What is wrong beyond types."""
    yield from http_settings.faults(destination)
    url = "" if destination.url is None else destination.url.reveal()
    if url.partition("?")[0].rstrip("/").endswith(_PATH):
        yield ("url",), f"{_PATH} is appended to it; give what comes before"
    if destination.api_key is not None:
        given = any(name.lower() == "authorization" for name in destination.headers)
        wrong = (
            "headers has an Authorization as well" if given else _key_fault(destination, destination.api_key)
        )
        if wrong:
            yield ("api_key",), wrong
    if destination.prompt is not None and (wrong := trial.fault(destination.prompt)):
        yield ("prompt",), wrong
    if _AMBIGUOUS.fullmatch(destination.name):
        yield ("name",), "can't be the name of a summary, since keys of other alerts may end in it"


def make(destination: Settings) -> Summary:
    """The destination. Raises Unusable for an address, a header, a key or a prompt that can't be used."""
    try:
        return Summary(destination)
    except ValueError as fault:
        raise Unusable(f"destination {destination.name}: {fault}") from None


def _key_fault(destination: Settings, key: Secret) -> str | None:
    if not key:
        return "is empty"
    return header_fault("Authorization", key, destination.url)


def _template(destination: Settings) -> Template | None:
    if destination.prompt is None:
        return None
    try:
        return Template(destination.prompt)
    except ValueError as fault:
        raise ValueError(f"prompt: {fault}") from None


def _endpoint(destination: Settings) -> Secret | None:
    """The url with the path of the call; a query stays."""
    if destination.url is None:
        return None
    try:
        parts = urlsplit(destination.url.reveal())
    except ValueError:
        return destination.url  # a fault that the poster names
    return Secret(parts._replace(path=parts.path.rstrip("/") + _PATH, fragment="").geturl())

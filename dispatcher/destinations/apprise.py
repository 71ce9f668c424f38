"""Hands alerts to Apprise, which speaks to a hundred services, in HTTP of its own.

Takes a delivery, returns an Outcome. What holds for other destinations does not hold for its connections: the
address guard, certificates and proxies are Apprise's business. It blocks, so that every attempt has a thread.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Annotated
from urllib.parse import unquote

import msgspec
from msgspec import Meta

from common.alert import Alert, Status
from common.faults import Path
from common.outcomes import Outcome, OutcomeKind
from common.settings import Count, Destination
from common.units import Secret
from dispatcher.destinations import answer, trial
from dispatcher.destinations.apprise_library import Notification, send, service
from dispatcher.destinations.base import Delivery, Request, Unrenderable, Unusable
from dispatcher.destinations.payload import RENDER_FAULTS
from dispatcher.destinations.template import Template, names_of
from dispatcher.destinations.threads import Threads
from dispatcher.destinations.wording import cut, line, severity, state, subject

__all__ = ["Apprise", "Settings", "faults", "make", "warnings"]

_EXTRA = 'needs what does not come by itself: pip install "redispatch[apprise]"'
_TITLE, _BODY = 250, 4000  # characters of ours; what a service takes is told in its URL, ?overflow=truncate
_TEXT, _LABELS = 2000, 10
_TELLING = 8  # characters of a part of a URL that is masked in errors
_MOODS = {"info": "info", "warning": "warning", "error": "failure", "critical": "failure"}


class Settings(Destination, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Services that Apprise knows. Its connections are its own: no address guard."""

    urls: Annotated[list[Secret], Meta(min_length=1, description="Apprise's URLs of services")]
    title: Annotated[Secret | None, Meta(description="template of the title, in Jinja")] = None
    body: Annotated[Secret | None, Meta(description="template of the text, in Jinja")] = None
    max_in_flight: Annotated[Count, Meta(description="threads per replica, one for each attempt")] = 4


class Apprise:
    """The destination that notifies. Raises ValueError for settings that can't be used."""

    def __init__(self, destination: Settings) -> None:
        _refuse(destination)
        self._urls = [url.reveal() for url in destination.urls]
        self._secrets = _secrets(self._urls)
        self._title = destination.title and Template(destination.title.reveal())
        self._body = destination.body and Template(destination.body.reveal())
        self._timeout = destination.timeout
        self._threads = Threads(f"apprise {destination.name}", destination.max_in_flight)

    def request(self, deliveries: Sequence[Delivery]) -> Request:
        """What Apprise is given for the one delivery, which is not what it sends. Raises Unrenderable."""
        (delivery,) = deliveries
        return Request({}, msgspec.json.encode(self._notification(delivery)))

    async def deliver(self, delivery: Delivery) -> Outcome:
        """One attempt at all services. What takes longer than the timeout may still arrive."""
        try:
            notification = self._notification(delivery)
        except Unrenderable as fault:
            return Outcome(OutcomeKind.RENDER, error=f"the notification can't be built: {fault}")
        try:
            async with asyncio.timeout(self._timeout):
                return await self._threads.call(partial(self._notify, notification))
        except TimeoutError:
            told = f"not done within {self._timeout}, {self._threads.busy} threads are still at work"
            return Outcome(OutcomeKind.TIMEOUT, error=told)

    async def close(self) -> None:
        """Nothing to let go of: threads that are still at work end with the process."""

    def _notification(self, delivery: Delivery) -> Notification:
        alert = delivery.alert
        try:
            names = names_of([delivery]) if self._title or self._body else {}
            title = self._title.render(names) if self._title else _title(alert)
            body = self._body.render(names) if self._body else _body(alert)
        except RENDER_FAULTS as fault:
            raise Unrenderable(str(fault)) from fault
        if wrong := trial.text_fault(body):
            raise Unrenderable(f"the body's template {wrong}")
        mood = "success" if alert.status is Status.RESOLVED else _MOODS[severity(alert)]
        return Notification(title=title, body=body, mood=mood)

    def _notify(self, notification: Notification) -> Outcome:
        """In a thread: each service in turn, whatever came of the one before."""
        failed = []
        for index, url in enumerate(self._urls):
            said = send(url, notification)
            if said is not None:
                failed.append(f"urls[{index}]: {said}")
        if not failed:
            return Outcome(OutcomeKind.DELIVERED)
        return Outcome(OutcomeKind.FAILED, error=answer.excerpt("; ".join(failed).encode(), self._secrets))


def faults(destination: Settings) -> Iterator[tuple[Path, str]]:
    """What is wrong beyond types."""
    if find_spec("apprise") is None:
        yield ("type",), _EXTRA
    else:
        for index, url in enumerate(destination.urls):
            if service(url.reveal()) is None:
                yield ("urls", index), "Apprise can't read it"
    if destination.title is not None and (fault := trial.fault(destination.title.reveal())):
        yield ("title",), fault
    if destination.body is not None and (
        fault := trial.fault(destination.body.reveal(), look=trial.text_fault)
    ):
        yield ("body",), fault


def warnings(destination: Settings) -> Iterator[tuple[Path, str]]:
    """What may be meant and often is not."""
    if len(destination.urls) > 1:
        yield ("urls",), "when one of them fails, all are notified again; a destination for each is safer"


def make(destination: Settings) -> Apprise:
    """The destination. Raises Unusable without the library, and for a URL or a template that is none."""
    try:
        return Apprise(destination)
    except ValueError as fault:
        raise Unusable(f"destination {destination.name}: {fault}") from None


def _refuse(destination: Settings) -> None:
    for path, fault in faults(destination):
        where = "".join(f"[{part}]" if isinstance(part, int) else part for part in path)
        raise ValueError(f"{where}: {fault}")


def _title(alert: Alert) -> str:
    return f"[{state(alert)}] {subject(alert, _TITLE)}"


def _body(alert: Alert) -> str:
    labels = [line(f"{name}={value}", _TITLE) for name, value in sorted(alert.labels.items())[:_LABELS]]
    more = len(alert.labels) - len(labels)
    told = (
        cut(alert.summary or "", _TEXT),
        cut(alert.annotations.get("ai_summary", ""), _TEXT),
        "" if alert.value is None else f"Value: {alert.value}",
        ", ".join([*labels, f"and {more} more"] if more > 0 else labels),
        cut(alert.url or "", _TEXT),
    )
    return cut("\n".join(text for text in told if text.strip()), _BODY) or subject(alert, _BODY)


def _secrets(urls: list[str]) -> list[str]:
    """What to mask in errors: parts of the URLs, longest first, as they stand there and as they are meant."""
    parts = {part for url in urls for part in re.split(r"[/:@?&=,]+", url)}
    texts = {*urls, *parts, *map(unquote, parts)}
    return sorted((text for text in texts if len(text) >= _TELLING), key=len, reverse=True)

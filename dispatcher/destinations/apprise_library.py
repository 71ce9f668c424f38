"""Calls Apprise, which is imported with the first call. Blocks; any thread may call.

Takes a service's URL and texts, returns what Apprise says of a failure. Nothing of its log goes elsewhere:
lines about a URL that it can't read may hold what is secret in it.
"""

from __future__ import annotations

import logging
import threading
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from dispatcher.destinations.wording import line

if TYPE_CHECKING:
    import apprise

_SAID = 1000  # characters of what Apprise says of a failure


class Notification(Struct, frozen=True, kw_only=True):
    """Plain texts; `mood` is one of Apprise's types: info, success, warning, failure."""

    title: str
    body: str
    mood: str


def service(url: str) -> apprise.NotifyBase | None:
    """What Apprise sends with; None for a URL that it can't read.

    One for each attempt: they keep state, and nothing says that threads may share one.
    """
    import apprise

    _listen()
    asset = apprise.AppriseAsset(
        app_id="redispatch",
        storage_mode="memory",
        secure_logging=True,
        # Both would call services in a pool of its own, which a process waits for at its end.
        async_mode=False,
        service_timeout=0,
    )
    return apprise.Apprise.instantiate(url, asset=asset)


def send(url: str, notification: Notification) -> str | None:
    """None when the service took it, else what Apprise says."""
    import apprise

    one = service(url)
    if one is None:
        return "Apprise can't read it"
    sender = apprise.Apprise()
    sender.add(one)
    said = _listen().here()
    title, body, mood = notification.title, notification.body, notification.mood
    if sender.notify(body=body, title=title, notify_type=mood, body_format="text"):
        return None
    return line(" ".join(said), _SAID) or "failed, and Apprise does not say why"


class _Ear(logging.Handler):
    """Hears what Apprise logs, for each thread apart: the only place where it says why it failed."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._heard = threading.local()

    def here(self) -> list[str]:
        """What is heard in this thread from now on."""
        lines: list[str] = []
        self._heard.lines = lines
        return lines

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line if its thread listens."""
        lines: list[str] | None = getattr(self._heard, "lines", None)
        if lines is not None:
            lines.append(record.getMessage())


@cache
def _listen() -> _Ear:
    ear, log = _Ear(), logging.getLogger("apprise")
    log.addHandler(ear)
    log.propagate = False
    return ear

"""What every destination that is reached over HTTP has, and what can be wrong with it.

Pure. The structs of such types extend `Http`, and their `faults` begin with those of here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from msgspec import Meta, field

from common.faults import Path
from common.settings import Destination
from common.units import Duration, Secret
from common.webhook_parts import header_fault, url_fault
from dispatcher.destinations.tls import Tls, TlsFault, context
from dispatcher.guard import why_refused

Status: TypeAlias = Annotated[int, Meta(ge=300, le=599)]


class Http(Destination, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of what is reached over HTTP."""

    url: Annotated[Secret | None, Meta(description="where it is; prints as ***")] = None
    headers: Annotated[dict[str, Secret], Meta(description="further request headers")] = field(
        default_factory=dict
    )
    allow_private: Annotated[
        bool, Meta(description="may be on a private, loopback or link-local address")
    ] = False
    connect_timeout: Annotated[
        Duration, Meta(description="for name, connection and TLS; never more than `timeout`")
    ] = Duration(3)
    proxy_from_env: Annotated[
        bool, Meta(description="take the proxy of HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY")
    ] = False
    tls: Annotated[Tls, Meta(description="certificates of its own")] = Tls()
    retry_on: Annotated[
        list[Status], Meta(description="4xx that are retried (408, 409, 425, 429); 3xx and 5xx are as well")
    ] = field(default_factory=lambda: [408, 409, 425, 429])
    gate_on: Annotated[
        list[Status],
        Meta(description="statuses that close the gate, three in a row (401, 403, 404, 410)"),
    ] = field(default_factory=lambda: [401, 403, 404, 410])
    reject_on: Annotated[
        list[Status], Meta(description="statuses that are final, as all other 4xx are (none)")
    ] = field(default_factory=list)


def faults(destination: Http, *, needs_url: bool = True) -> Iterator[tuple[Path, str]]:
    """Where below the destination, and what is wrong."""
    if destination.url is None:
        if needs_url:
            yield ("url",), f"is missing; a {destination.type} needs one"
    elif fault := url_fault(destination.url):
        yield ("url",), fault
    for name, value in destination.headers.items():
        if fault := header_fault(name, value, destination.url):
            yield ("headers", name), fault
    if not destination.connect_timeout > 0:
        yield ("connect_timeout",), "must be more than 0"
    yield from _tls(destination.tls)
    yield from _lists(destination)


def _tls(tls: Tls) -> Iterator[tuple[Path, str]]:
    if tls == Tls():
        return
    try:
        context(tls)
    except TlsFault as fault:
        yield ("tls", fault.setting), str(fault)


def _lists(destination: Http) -> Iterator[tuple[Path, str]]:
    """A status is in one list; one that moves has to be taken out where it was."""
    seen: dict[int, str] = {}
    for name in ("gate_on", "retry_on", "reject_on"):
        for place, status in enumerate(getattr(destination, name)):
            if status in seen:
                yield (name, place), f"{status} is in {seen[status]} too; give that list without it"
            seen[status] = name


def warnings(destination: Http) -> Iterator[tuple[Path, str]]:
    """An address that the guard will refuse."""
    host = urlsplit(destination.url.reveal()).hostname if destination.url else None
    why = "loopback" if host == "localhost" else why_refused(host or "")
    if why not in (None, "no address") and not destination.allow_private:
        yield ("url",), f"is a {why} address; every delivery will be refused without allow_private: true"

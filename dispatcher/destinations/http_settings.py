"""What every destination that is reached over HTTP has, and what can be wrong with it.

Pure. The structs of such types extend `Http`, and their `faults` begin with those of here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta, field

from common.faults import Path
from common.settings import Destination
from common.units import Secret
from common.webhook_parts import header_fault, url_fault
from dispatcher.guard import why_refused


class Http(Destination, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of what is reached over HTTP."""

    url: Annotated[Secret | None, Meta(description="where it is; prints as ***")] = None
    headers: Annotated[dict[str, Secret], Meta(description="further request headers")] = field(
        default_factory=dict
    )
    allow_private: Annotated[
        bool, Meta(description="may be on a private, loopback or link-local address")
    ] = False


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


def warnings(destination: Http) -> Iterator[tuple[Path, str]]:
    """An address that the guard will refuse."""
    host = urlsplit(destination.url.reveal()).hostname if destination.url else None
    why = "loopback" if host == "localhost" else why_refused(host or "")
    if why not in (None, "no address") and not destination.allow_private:
        yield ("url",), f"is a {why} address; every delivery will be refused without allow_private: true"

"""What is the same in every request to a destination: address, headers, and what must not be told.

Takes the settings, returns a Target. Pure. Raises ValueError that names the setting, no secret.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping

from msgspec import Struct
from yarl import URL

from common import __version__
from common.webhook_parts import header_fault, url_fault
from dispatcher.destinations.http_settings import Http

_TELLING = 8  # characters; shorter texts are too common to be masked
_TELLING_PATH = 16  # parts of a path: `webhooks` is none, a token is


class Target(Struct, frozen=True):
    """`where` is host and port, for people; `secrets` are the texts to mask in what a receiver answers."""

    url: URL
    where: str
    headers: dict[str, str]
    secrets: list[str]

    def __repr__(self) -> str:
        return f"Target({self.where})"


def target(destination: Http, own: Mapping[str, str], hide: Iterable[str]) -> Target:
    """Where and how a destination is posted to.

    `own` are the headers of its type, names in small letters, which win over those of the settings; `hide`
    are further texts to mask.
    """
    url = _url(destination)
    headers = {
        "user-agent": f"redispatch/{__version__}",
        "content-type": "application/json",
        "accept": "*/*",
    }
    for name, value in destination.headers.items():
        _refuse(f"headers.{name}", header_fault(name, value, destination.url))
        headers[name.lower()] = value.reveal()
    headers |= own
    headers["accept-encoding"] = "identity"
    if url.user is not None or url.password is not None:
        headers["authorization"] = _basic(url.user or "", url.password or "")
    return Target(
        url=url.with_user(None).with_fragment(None),
        where=f"{url.host_subcomponent}:{url.port}",
        headers=headers,
        secrets=_secrets(destination, url, headers, hide),
    )


def _url(destination: Http) -> URL:
    if destination.url is None:
        raise ValueError("url: is missing")
    _refuse("url", url_fault(destination.url))
    try:
        return URL(destination.url.reveal())
    except ValueError:
        raise ValueError("url: can't be read as a URL") from None


def _refuse(setting: str, fault: str | None) -> None:
    if fault is not None:
        raise ValueError(f"{setting}: {fault}")


def _basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def _secrets(destination: Http, url: URL, headers: dict[str, str], hide: Iterable[str]) -> list[str]:
    """Longest first, so that a part is not masked before the whole."""
    given = [headers[name.lower()] for name in destination.headers]
    texts = {part for value in [*given, headers.get("authorization", "")] for part in value.split()}
    texts |= {str(url), url.path_qs, url.raw_path_qs, url.query_string, url.user or "", url.password or ""}
    texts |= set(url.query.values()) | {part for part in url.parts if len(part) >= _TELLING_PATH}
    texts |= set(hide)
    return sorted((text for text in texts if len(text) >= _TELLING), key=len, reverse=True)

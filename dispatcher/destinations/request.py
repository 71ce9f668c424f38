"""What is the same in every request to a webhook: address, headers, signing keys, and what must not be told.

Takes a destination's settings, returns a Target. Pure. Raises ValueError that names the setting, no secret.
"""

from __future__ import annotations

from base64 import b64encode

from msgspec import Struct
from yarl import URL

from common import __version__
from common.settings import Destination
from common.webhook_parts import header_fault, signing_key, url_fault

_TELLING = 8  # characters; shorter texts are too common to be masked
_TELLING_PATH = 16  # parts of a path: `webhooks` is none, a token is


class Target(Struct, frozen=True):
    """`where` is host and port, for people; `secrets` are the texts to mask in what a receiver answers."""

    url: URL
    where: str
    headers: dict[str, str]
    keys: list[bytes]
    secrets: list[str]

    def __repr__(self) -> str:
        return f"Target({self.where})"


def target(destination: Destination) -> Target:
    """Where and how a destination is posted to."""
    url = _url(destination)
    headers = {
        "user-agent": f"redispatch/{__version__}",
        "content-type": "application/json",
        "accept": "*/*",
    }
    for name, value in destination.headers.items():
        _refuse(f"headers.{name}", header_fault(name, value, destination.url))
        headers[name.lower()] = value.reveal()
    headers["accept-encoding"] = "identity"
    if url.user is not None or url.password is not None:
        headers["authorization"] = _basic(url.user or "", url.password or "")
    return Target(
        url=url.with_user(None).with_fragment(None),
        where=f"{url.host_subcomponent}:{url.port}",
        headers=headers,
        keys=_keys(destination),
        secrets=_secrets(destination, url, headers),
    )


def _url(destination: Destination) -> URL:
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


def _keys(destination: Destination) -> list[bytes]:
    keys = []
    for index, secret in enumerate(destination.secrets):
        try:
            keys.append(signing_key(secret))
        except ValueError as fault:
            raise ValueError(f"secrets[{index}]: {fault}") from None
    return keys


def _secrets(destination: Destination, url: URL, headers: dict[str, str]) -> list[str]:
    """Longest first, so that a part is not masked before the whole."""
    given = [headers[name.lower()] for name in destination.headers]
    texts = {part for value in [*given, headers.get("authorization", "")] for part in value.split()}
    texts |= {str(url), url.path_qs, url.raw_path_qs, url.query_string, url.user or "", url.password or ""}
    texts |= set(url.query.values()) | {part for part in url.parts if len(part) >= _TELLING_PATH}
    signing = {secret.reveal() for secret in destination.secrets}
    texts |= signing | {text.removeprefix("whsec_") for text in signing}
    return sorted((text for text in texts if len(text) >= _TELLING), key=len, reverse=True)

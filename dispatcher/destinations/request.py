"""What is the same in every request to a webhook: address, headers, signing keys, and what must not be told.

Takes a destination's settings, returns a Target. Pure. Raises ValueError that names the setting, no secret.
"""

from __future__ import annotations

import re
from base64 import b64encode

from msgspec import Struct
from yarl import URL

from common import __version__
from common.settings import Destination
from dispatcher.destinations.signing import signing_key

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Ours or the connection's; whoever could set them could break the framing or the signature.
_OURS = frozenset(
    (
        *("webhook-id", "webhook-timestamp", "webhook-signature"),
        *("content-length", "content-encoding", "transfer-encoding", "accept-encoding", "expect"),
        *("connection", "keep-alive", "te", "trailer", "upgrade"),
    )
)
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
    headers |= {name.lower(): _header(name, value.reveal()) for name, value in destination.headers.items()}
    headers["accept-encoding"] = "identity"
    if url.user is not None or url.password is not None:
        if "authorization" in headers:
            raise ValueError("headers.authorization: the url has a user name or password as well")
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
    try:
        url = URL(destination.url.reveal())
    except ValueError:
        raise ValueError("url: can't be read") from None
    if url.scheme not in ("http", "https") or not url.raw_host or not url.port:
        raise ValueError("url: expected http://host/... or https://host/...")
    return url


def _header(name: str, value: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"headers: {name!r} is not a header's name")
    if name.lower() in _OURS:
        raise ValueError(f"headers.{name}: is set by redispatch")
    if any((c < " " and c != "\t") or c == "\x7f" or "\ud800" <= c <= "\udfff" for c in value):
        raise ValueError(f"headers.{name}: holds a line break or another control character")
    return value


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
    texts |= {secret.reveal() for secret in destination.secrets}
    return sorted((text for text in texts if len(text) >= _TELLING), key=len, reverse=True)

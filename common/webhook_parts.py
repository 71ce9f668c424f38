"""What a webhook's URL, secrets and headers must be like, for the configuration's checks and for requests.

Pure. Takes a setting; returns what is wrong with it, or None, and never shows the secret.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from urllib.parse import urlsplit

from common.units import Secret

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Ours or the connection's; who could set them could break the framing or the signature.
_OURS = frozenset(
    (
        *("webhook-id", "webhook-timestamp", "webhook-signature"),
        *("content-length", "content-encoding", "transfer-encoding", "accept-encoding", "expect"),
        *("connection", "keep-alive", "te", "trailer", "upgrade"),
    )
)


def url_fault(url: Secret) -> str | None:
    """http or https, a host, a port that is one, and nothing that has to be escaped first."""
    text = url.reveal()
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "can't be read as a URL"
    if not text.isprintable() or " " in text:
        return "holds a space, a line break or another character that a URL can't hold"
    if parts.scheme not in ("http", "https") or not host or port == 0:
        return "expected http://host/... or https://host/..."
    return None


def signing_key(secret: Secret) -> bytes:
    """The key of a secret: base64 after `whsec_`, else the text's bytes. Raises ValueError."""
    text = secret.reveal()
    if not text:
        raise ValueError("is empty")
    if not text.startswith("whsec_"):
        return text.encode()
    try:
        key = b64decode(text.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("what follows whsec_ is not base64") from None
    if not key:
        raise ValueError("nothing follows whsec_")
    return key


def secret_fault(secret: Secret) -> str | None:
    """A secret that a key can be made of."""
    try:
        signing_key(secret)
    except ValueError as fault:
        return str(fault)
    return None


def header_fault(name: str, value: Secret, url: Secret | None) -> str | None:
    """A header's name, not one that redispatch or `url` sets, and a value on one line."""
    if not _HEADER.fullmatch(name):
        return "is no name of a header"
    if name.lower() in _OURS:
        return "is set by redispatch"
    if name.lower() == "authorization" and url is not None and _has_user(url):
        return "the url has a user name or password as well"
    return value_fault(value.reveal())


def value_fault(text: str) -> str | None:
    """A header's value on one line."""
    if any(character != "\t" and not character.isprintable() for character in text):
        return "holds a line break or another control character"
    return None


def _has_user(url: Secret) -> bool:
    if url_fault(url) is not None:
        return False
    parts = urlsplit(url.reveal())
    return parts.username is not None or parts.password is not None

"""Standard Webhooks signatures: takes secrets, id, time and body, returns the `webhook-signature` header.

Pure. `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`, once per secret, so that a receiver
accepts old and new while a secret is changed.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode
from collections.abc import Iterable, Sequence

from common.units import Secret

_PREFIX = "whsec_"


def signing_key(secret: Secret) -> bytes:
    """The key of a secret: base64 after `whsec_`, else the text's bytes. Raises ValueError."""
    text = secret.reveal()
    if not text.startswith(_PREFIX):
        key = text.encode()
    else:
        try:
            key = b64decode(text[len(_PREFIX) :], validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("what follows whsec_ is not base64") from None
    if not key:
        raise ValueError("is empty")
    return key


def signature(keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """The header's value; `timestamp` in seconds. One signature per key, in their order."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return " ".join(_sign(keys, signed))


def _sign(keys: Sequence[bytes], signed: bytes) -> Iterable[str]:
    for key in keys:
        digest = hmac.digest(key, signed, "sha256")
        yield "v1," + binascii.b2a_base64(digest, newline=False).decode()

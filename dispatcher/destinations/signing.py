"""Standard Webhooks signatures: takes keys, id, time and body, returns the `webhook-signature` header.

Pure. `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`, once per key, so that a receiver
accepts old and new while a secret is changed.
"""

from __future__ import annotations

import binascii
import hmac
from collections.abc import Iterable, Sequence


def signature(keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """The header's value; `timestamp` in seconds. One signature per key, in their order."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return " ".join(_sign(keys, signed))


def _sign(keys: Sequence[bytes], signed: bytes) -> Iterable[str]:
    for key in keys:
        digest = hmac.digest(key, signed, "sha256")
        yield "v1," + binascii.b2a_base64(digest, newline=False).decode()

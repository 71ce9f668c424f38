"""Standard Webhooks signatures, from the receiver's side.

Takes the headers and the raw body of a request and the secrets it may be signed with (`whsec_` and base64,
or any text); returns what is wrong with it, or None. Raises ValueError for a `whsec_` without base64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping

PREFIX = "whsec_"
TOLERANCE = 300  # seconds a timestamp may be off, as the specification's libraries have it


def key_of(secret: str) -> bytes:
    """The bytes that a secret stands for: what the base64 after `whsec_` says, else the text's own."""
    if not secret.startswith(PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError) as fault:
        raise ValueError(f"what follows {PREFIX} is not base64") from fault


def fault(headers: Mapping[str, str], body: bytes, secrets: Iterable[str], now: float) -> str | None:
    """What is wrong with a request's signature at `now` (seconds since the epoch); None when it is right."""
    named = {name: headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature")}
    missing = [f"webhook-{name}" for name, value in named.items() if not value]
    if missing:
        return f"no {', '.join(missing)}"
    stamp = named["timestamp"]
    if not (stamp.isascii() and stamp.isdigit()) or abs(now - int(stamp)) > TOLERANCE:
        return f"webhook-timestamp {stamp!r} is not about now"
    given = [part.partition(",")[2] for part in named["signature"].split() if part.startswith("v1,")]
    signed = f"{named['id']}.{stamp}.".encode() + body
    for secret in secrets:
        right = base64.b64encode(hmac.digest(key_of(secret), signed, hashlib.sha256)).decode()
        if any(hmac.compare_digest(right.encode(), one.encode()) for one in given):
            return None
    return "webhook-signature matches no secret"

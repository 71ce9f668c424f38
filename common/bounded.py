"""Identifiers that are also a URL path, a header, and a key at a destination: at most 255 bytes of ASCII.

Takes an escaped text, returns it or what fits of it with a hash. Pure.
"""

from __future__ import annotations

from hashlib import blake2b

LONGEST = 255


def bounded(text: str) -> str:
    """The escaped text itself, or what fits of it and a hash of the whole, at most 255 bytes."""
    if len(text) <= LONGEST:
        return text
    digest = blake2b(text.encode(), digest_size=16).hexdigest()
    return f"{text[: LONGEST - 1 - len(digest)]}:{digest}"

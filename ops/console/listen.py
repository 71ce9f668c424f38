"""Where the console may listen: asked at its start, at a reload and by `redispatch check`.

Takes the section; returns the setting that is missing, and why. Pure, and without the server's imports.
"""

from __future__ import annotations

from common.settings import Console
from common.units import Address


def too_open(console: Console) -> tuple[str, str] | None:
    """Why this configuration must not be served, if it must not: a setting of `console`, and a sentence."""
    if console.tokens or Address.parse(console.listen).loopback:
        return None
    if not console.allow_anonymous:
        return "listen", (
            "anybody who reaches this address may replay and discard: listen on 127.0.0.1, "
            "give console.tokens, or set console.allow_anonymous and console.hosts if that is meant"
        )
    if not console.hosts:
        return "hosts", (
            "without tokens, a page of another site could replay and discard by a name of its own that leads "
            "here: give the names in the browser's address bar, or console.tokens"
        )
    return None

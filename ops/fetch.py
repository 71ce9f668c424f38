"""Dead letters with the alerts that were too large for Redis, for those who look at them.

Takes Letters; yields them in the same order, a few of their objects in memory at once. An object that can't
be got is said in the letter, and stops nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from msgspec.structs import replace

from common.alert import Malformed, TooNew
from common.objects import Objects
from common.reference import decode
from common.stored import Away, Broken
from ops.letters import Letter

AT_ONCE = 8


async def filled(found: Sequence[Letter], objects: Objects) -> AsyncIterator[Letter]:
    """Those without an object as they are."""
    for start in range(0, len(found), AT_ONCE):
        some = found[start : start + AT_ONCE]
        for letter in await asyncio.gather(*(_filled(letter, objects) for letter in some)):
            yield letter


async def _filled(letter: Letter, objects: Objects) -> Letter:
    name = letter.fields.get(b"object")
    if name is None:
        return letter
    try:
        reference = decode(letter.fields.get(b"alert", b""), name)
        stored = await objects.get(letter.destination, reference)
    except (Away, Broken) as fault:
        return replace(letter, fault=str(fault))
    except (Malformed, TooNew):
        return letter  # its `alert` is shown as what it is
    return replace(letter, fields=letter.fields | {b"alert": stored})

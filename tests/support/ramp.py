"""The ramp as the take script has it: attempts of the fleet in each second after the probe."""

from __future__ import annotations

import re
from importlib.resources import files

_text = files("dispatcher").joinpath("lua", "take.lua").read_text("utf-8")
_found = re.search(r"local SECONDS = \{([\d, ]+)\}", _text)
assert _found
RAMP = [int(word) for word in _found[1].split(",")]
_found = re.search(r"local KEPT, .*= ([\d.]+), ", _text)
assert _found
KEPT = float(_found[1])  # seconds for which what is not used is kept


def allowed_after(seconds: float) -> int:
    """How many attempts are allowed in all after so many seconds."""
    whole = int(seconds)
    return int(sum(RAMP[:whole]) + RAMP[whole] * (seconds - whole) + 1e-6)

"""A process that ends with the one that started it, also when that one is killed.

On Linux it gets a signal when its parent ends (PR_SET_PDEATHSIG); elsewhere there is no such thing.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def follow(parent: int, number: int = signal.SIGTERM) -> None:
    """Ask for signal `number` when process `parent`, which is ours, ends; at once when it already has."""
    if _libc is None:
        return
    _libc.prctl(_PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def follower(number: int = signal.SIGTERM) -> Callable[[], None]:
    """A `preexec_fn` that makes the child follow the process that calls this."""
    parent = os.getpid()
    return lambda: follow(parent, number)

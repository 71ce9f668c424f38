"""Prints every delivery as one JSON line: for trying things out, and for collectors that read a pod's output.

Writes to the descriptor itself, so that a line is out (or known not to be) when the outcome is told. A reader
that stops reading stops the dispatcher once the pipe is full.
"""

from __future__ import annotations

import os
import sys

import msgspec

from common.outcomes import Outcome, OutcomeKind
from common.settings import Destination
from dispatcher.destinations.base import Delivery
from dispatcher.destinations.payload import RENDER_FAULTS, Payload, payload

_DELIVERED = Outcome(OutcomeKind.DELIVERED)
_encode = msgspec.json.Encoder().encode


class _Line(Payload):
    """A webhook's body, with what its header says."""

    key: str = ""


class Settings(Destination, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Has nothing of its own."""


class Stdout:
    """The destination that prints."""

    def deliver(self, delivery: Delivery) -> Outcome:
        """One line. A standard output that is closed or broken is a failure like another."""
        try:
            line = _line(delivery)
        except RENDER_FAULTS as fault:
            return Outcome(OutcomeKind.RENDER, error=f"the line can't be built: {fault}")
        try:
            _write(line)
        except (OSError, ValueError) as fault:
            return Outcome(OutcomeKind.FAILED, error=f"standard output: {fault}")
        return _DELIVERED

    async def close(self) -> None:
        """Nothing to let go of: standard output is the process's."""


def make(destination: Settings) -> Stdout:
    """The destination; it has no settings of its own."""
    return Stdout()


def _line(delivery: Delivery) -> bytes:
    sent = payload(delivery)
    return _encode(_Line(type=sent.type, timestamp=sent.timestamp, data=sent.data, key=delivery.key)) + b"\n"


def _write(line: bytes) -> None:
    # Descriptor 1 may be a socket of ours when the process began with standard output closed.
    if sys.stdout is None:
        raise ValueError("closed")
    descriptor = sys.stdout.fileno()
    while line:
        line = line[os.write(descriptor, line) :]

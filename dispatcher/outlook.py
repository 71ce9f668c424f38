"""How a lane sees the gate of its destination: what its next take has to heed, and which entry is the probe.

Takes what each take has told; returns a Care, or None while nothing is to be heeded. Logs when the gate
closes and opens.
"""

from __future__ import annotations

from common.log import Log
from common.settings import Destination
from dispatcher.take import Care, Taken

log = Log("dispatcher")

LEASE_MARGIN = 5000  # ms that a probe is one's own beyond its timeout: for claim and settlement


class Outlook:
    """One per lane. `closed` is the state of a closed gate, "" when it was open; `ramping`: it has opened and
    holds back."""

    def __init__(self, destination: Destination) -> None:
        self.closed = ""
        self.ramping = False
        self._name = destination.name
        # Of a batch the request counts, which is not made when its deliveries are taken.
        self._rate = destination.rate if destination.batch is None else None
        self._lease = destination.timeout.ms + LEASE_MARGIN
        self._besides = 0  # attempts made without asking the rate
        self._probe = ""  # id of the entry that is the fleet's probe

    def care(self) -> Care | None:
        """What the next take has to heed; None for the fast way."""
        if self._rate is None and not self.closed and not self.ramping:
            return None
        besides, self._besides = self._besides, 0
        return Care(self._rate, self._lease, besides)

    def see(self, taken: Taken) -> None:
        """Remember how the gate is, and tell when it has closed or opened."""
        if taken.probe:
            self._probe = taken.entries[0].id
        if taken.gate and taken.gate != self.closed:
            until = taken.until or None
            log.warning(
                "gate_closed", destination=self._name, state=taken.gate, reason=taken.reason, until=until
            )
        elif self.closed and not taken.gate:
            log.info("gate_opened", destination=self._name, state=self.closed)
        self.closed, self.ramping = taken.gate, taken.ramp

    def made_besides(self, attempts: int) -> None:
        """So many attempts are made of what was reclaimed: the next take pays for them."""
        if self._rate is not None:
            self._besides += attempts

    def is_probe(self, entry_id: str) -> bool:
        """Whether that entry is the probe."""
        return entry_id == self._probe

    def ends_probe(self, entry_id: str) -> bool:
        """The same, for the last time."""
        if entry_id != self._probe:
            return False
        self._probe = ""
        return True

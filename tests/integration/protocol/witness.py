"""What must be true of one destination, kept beside the real scripts: who owns what, what was sent, and why.

The machine tells it each step that was taken and what the script said. It raises Violation when a script
allowed what the protocol forbids: a second sending without an excuse, a settlement by somebody who was no
longer the owner, a difference in the ledger, a move that is not in the table of states.

An **excuse** is what lets a delivery be sent again: its entry was handed out anew (its owner died, stood
still, or lost it with the group), vanished, or was posted or replayed again, its record was forgotten, or
the destination's answer was lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from enum import StrEnum

from msgspec import Struct

from common.outcomes import Dead, Delivered, Settlement, Superseded
from common.states import TABLE, Event, State
from dispatcher.claim import Verdict
from dispatcher.destinations.base import Delivery
from dispatcher.entry import Entry
from dispatcher.settle import Settled
from tests.integration.protocol.picture import Picture

OPEN = (State.QUEUED, State.IN_FLIGHT)
BY_HAND = "nobody owned it any more"


class Violation(AssertionError):
    """The protocol was broken."""


class Stage(StrEnum):
    """How far a replica has come with an entry."""

    TAKEN = "taken"
    DELIVER = "deliver"
    SUPERSEDED = "superseded"
    DUPLICATE = "duplicate"
    LOOK_AGAIN = "look again"


CLAIMED = (Stage.DELIVER, Stage.SUPERSEDED)


class Held(Struct, eq=False):
    """An entry in a replica's hand; `reached` and `answered` tell of its sending."""

    consumer: str
    entry: Entry
    delivery: Delivery
    just_read: bool = False  # too short a time ago for anybody to have taken it over
    stage: Stage = Stage.TAKEN
    reached: bool = False
    answered: bool = False
    applied: bool = False
    excuse: str = ""

    @property
    def owner(self) -> tuple[str, int]:
        """As whom the script knows this replica, if it is the owner."""
        return self.consumer, self.entry.deliveries


class Witness:
    """One destination."""

    def __init__(self, max_dead: int) -> None:
        self.max_dead = max_dead
        self.flight: dict[str, str] = {}  # the entry that a key's record names
        self.owners: dict[str, tuple[str, int]] = {}
        self.open: list[Held] = []
        self.sends: defaultdict[str, list[Held]] = defaultdict(list)
        self.delivered: set[str] = set()  # their records say so
        self.vanished: set[str] = set()  # ids deleted by hand that have not come back
        self.loose = False  # entries may be pending under nobody
        self.adrift = 0  # of these, not yet booked as lost
        self.left = 0  # objects that may be listed for nobody, since their entries vanished
        self.lost = 0
        self.accepted: set[str] = set()
        self.ended: set[str] = set()  # died, superseded, or vanished since they were last queued

    # What happens to keys

    def appended(self, before: Picture, after: Picture, accepted: Iterable[str]) -> None:
        """`accepted` are the keys that a sender was told are safe."""
        for entries, old in ((after.entries, before.entries), (after.dead, before.dead)):
            new = [key for entry_id, key in entries.items() if entry_id not in old]
            for key in new:
                self._appended(key, before, twice=new.count(key) > 1)
                (self.ended.add if entries is after.dead else self.ended.discard)(key)
        for key in accepted:
            record = after.records[key]
            if record and record.state in OPEN and record.entry_id not in after.entries:
                raise Violation(f"{key} is told safe, but its entry has vanished: {record}")
            self.accepted.add(key)

    def _appended(self, key: str, before: Picture, *, twice: bool) -> None:
        record = before.records[key]
        open_and_gone = record and record.state in OPEN and record.entry_id not in before.entries
        if twice or (record and not open_and_gone):
            raise Violation(f"{key} was appended although it was known: {record}")
        self.flight.pop(key, None)
        self._excuse_key(key, "it was appended again")

    def forget(self, key: str) -> None:
        """Its record is gone."""
        self.delivered.discard(key)
        self.flight.pop(key, None)
        self._excuse_key(key, "its record was forgotten")

    def replayed(self, keys: Iterable[str]) -> None:
        """Dead letters are back in the queue."""
        self.ended -= set(keys)

    # What happens to entries

    def handed(self, consumer: str, entries: Iterable[Entry]) -> None:
        """They are pending under this consumer now."""
        for entry in entries:
            self._excuse_entry(entry.id, "it was handed out again")
            self.owners[entry.id] = consumer, entry.deliveries

    def regained(self, consumer: str, in_work: Iterable[Entry], after: Picture) -> None:
        """What nobody owned and this consumer has in work is its own again, as it was."""
        for entry in in_work:
            owner = (consumer, entry.deliveries)
            if entry.id not in self.owners and (after.pending or {}).get(entry.id) == owner:
                self.owners[entry.id] = owner

    def start(self, held: Held) -> None:
        """A replica has it in hand."""
        self.open.append(held)

    def vanish(self, entry_id: str, key: str) -> None:
        """The entry was deleted by hand."""
        self.vanished.add(entry_id)
        self.left += 1
        self.adrift += 1
        self.ended.add(key)

    def reclaimed(self, after: Picture) -> None:
        """A reclaim lets go of entries that have vanished, and of nothing else."""
        for entry_id in set(self.owners) - set(after.pending or {}):
            if entry_id in self.vanished:
                self._disown(entry_id, "it vanished")
                for held in self.open:  # it was idle for long enough to be reclaimed
                    held.just_read = held.just_read and held.entry.id != entry_id

    def disowned(self, consumer: str | None) -> None:
        """What this consumer owned, or everybody, is pending under nobody any more."""
        self.loose = True
        for entry_id, (owner, _) in list(self.owners.items()):
            if consumer in (None, owner):
                self._disown(entry_id, BY_HAND)

    def _disown(self, entry_id: str, why: str) -> None:
        del self.owners[entry_id]
        self._excuse_entry(entry_id, why)

    # What replicas do

    def claimed(self, held: Held, verdict: Verdict) -> None:
        """The claim script's verdict; NOT_MINE ends it."""
        key, mine = held.delivery.key, self.owners.get(held.entry.id) == held.owner
        # What was disowned by hand a moment after it was read may be claimed all the same.
        overlooked = held.just_read and held.excuse == BY_HAND
        if (verdict is not Verdict.NOT_MINE) != mine and not (overlooked and not mine):
            owner = self.owners.get(held.entry.id)
            raise Violation(f"claim said {verdict!r} to {held.owner} of {held.entry.id}, owned by {owner}")
        match verdict:
            case Verdict.NOT_MINE:
                self.open.remove(held)
            case Verdict.LOOK_AGAIN:
                held.stage = Stage.LOOK_AGAIN
            case Verdict.DUPLICATE:
                held.stage = Stage.DUPLICATE
                if key not in self.delivered:
                    raise Violation(f"{key} is told a duplicate, but was not delivered")
            case Verdict.DELIVER | Verdict.SUPERSEDED:
                self._given(held)
                held.stage = Stage.DELIVER if verdict is Verdict.DELIVER else Stage.SUPERSEDED

    def _given(self, held: Held) -> None:
        """The right to send it: nobody else may have that."""
        key = held.delivery.key
        self.flight[key] = held.entry.id
        if held.delivery.force:
            self.delivered.discard(key)
            self._excuse_key(key, "it is sent by force", besides=held)
        if key in self.delivered:
            raise Violation(f"{key} was delivered and is handed over again")
        for other in self.open:
            rival = other.delivery.key == key and other.stage in CLAIMED
            if rival and other is not held and not other.excuse:
                raise Violation(f"{key} is claimed by {other.owner} and by {held.owner}")

    def sent(self, held: Held, *, answered: bool) -> None:
        """The destination has it; `answered` when we heard so."""
        earlier = [other for other in self.sends[held.delivery.key] if not other.excuse]
        if earlier and not held.delivery.force and not held.excuse:
            raise Violation(f"{held.delivery.key} is sent again: {earlier} and {held}")
        self.sends[held.delivery.key].append(held)
        held.reached, held.answered = True, answered
        if not answered:
            held.excuse = held.excuse or "the answer was lost"

    def settled(self, held: Held, settlement: Settlement, answer: Settled, *, told: bool) -> None:
        """What the settle script said; `told` when the answer reached the replica."""
        if answer is Settled.FENCED:
            if not (held.excuse or held.applied):
                raise Violation(f"{settlement} of {held} was fenced without a cause")
        else:
            self._carried_out(held, settlement)
        if not told and answer is not Settled.FENCED:
            held.applied = True
        else:
            self.open.remove(held)

    def _carried_out(self, held: Held, settlement: Settlement) -> None:
        entry_id, key, owner = held.entry.id, held.delivery.key, self.owners.get(held.entry.id)
        if held.stage not in CLAIMED:
            allowed = owner is not None and owner[0] == held.consumer
        else:
            success = isinstance(settlement, Delivered) and owner is not None
            allowed = (owner == held.owner or success) and self.flight.get(key) == entry_id
        if held.applied or not allowed:
            raise Violation(f"{settlement} of {held} was carried out, the owner is {owner}")
        del self.owners[entry_id]
        if self.flight.get(key) == entry_id:
            del self.flight[key]
        if entry_id in self.vanished:
            self.vanished.discard(entry_id)
            self.adrift = max(0, self.adrift - 1)
        if isinstance(settlement, Delivered | Superseded):
            self.delivered.add(key)
        if isinstance(settlement, Dead | Superseded):
            self.ended.add(key)
        self._excuse_entry(entry_id, "it was settled", besides=held)
        if not isinstance(settlement, Delivered | Superseded):
            held.excuse = held.excuse or "it was not delivered"

    def _excuse_entry(self, entry_id: str, why: str, besides: Held | None = None) -> None:
        for held in self.open:
            if held.entry.id == entry_id and held is not besides:
                held.excuse = held.excuse or why

    def _excuse_key(self, key: str, why: str, besides: Held | None = None) -> None:
        for held in (*self.open, *self.sends[key]):
            if held.delivery.key == key and held is not besides:
                held.excuse = held.excuse or why

    # What must hold

    def moved(self, before: Picture, after: Picture, events: dict[str, Collection[Event]]) -> None:
        """Every record that changed did so by moves of the table, of kinds that this step can make."""
        for key, record in after.records.items():
            if record == before.records[key]:
                continue
            reached, told = {before.state(key)}, events.get(key, ())
            for _ in range(4):  # a batch may have several entries of a key
                reached |= {
                    TABLE[state, event] for state in reached for event in told if (state, event) in TABLE
                }
            if not told or after.state(key) not in reached:
                raise Violation(f"the record of {key} went from {before.records[key]} to {record}")

    def check(self, after: Picture) -> None:
        """After each step."""
        self.adrift -= after.ledger.lost - self.lost
        self.lost = after.ledger.lost
        if self.adrift < 0 or after.missing != self.adrift or after.missing_dead != 0:
            told = f"short of {after.missing}, of dead letters {after.missing_dead}"
            raise Violation(
                f"the ledger is {told}; {self.adrift} vanished: {after.ledger}, depth {after.depth}"
            )
        if after.referred - after.listed:
            raise Violation(
                f"referred to and not listed, so that it may be swept: {after.referred - after.listed}"
            )
        if len(after.listed - after.referred) > self.left:
            raise Violation(f"listed for nobody: {after.listed - after.referred}, {self.left} vanished")
        if len(after.dead) > self.max_dead:
            raise Violation(f"more dead letters than {self.max_dead}: {after.dead}")
        if (after.pending or {}) != self.owners:
            raise Violation(f"pending: {after.pending}, expected {self.owners}")

    def account(self) -> None:
        """At the end, when nothing waits any more: nothing that was accepted is lost."""
        explained = self.ended | self.delivered  # the latter without a sending when it was superseded
        silently = [key for key in self.accepted if not self.sends[key] and key not in explained]
        if silently:
            raise Violation(f"accepted and never sent: {silently}")

"""The real scripts on a real server, through the real steps of both services, and two replicas to use them.

Takes a client; every method is one step of a replica, a sender, an operator or fate, tells the witnesses of
it and checks what must hold after it. A group that is gone is made again, as the dispatcher does. Raises
Violation.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import count
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from common.alert import Alert, Status, encode
from common.keys import GROUP, Destination
from common.outcomes import Dead, Delivered, Duplicate, Later, OutcomeKind, Reason, Settlement, Superseded
from common.scripts import Script
from common.settings import Ingest, Objects, Queue
from common.states import Event as Move
from common.trouble import Kind, kind_of
from common.units import Size
from common.wire import Wire
from dispatcher.claim import JustRead, claim
from dispatcher.entry import Entry, read
from dispatcher.keep_alive import keep_alive
from dispatcher.reclaim import find, reap, reclaim
from dispatcher.settle import Caps, Settled, settle
from dispatcher.settling import Attempt, Settling
from dispatcher.take import Care, make_group, take
from ingest.append import Appender
from ingest.event import Event, Stored, Unavailable
from ingest.route import Router
from tests.integration.protocol.picture import NAMESPACE, Picture, look
from tests.integration.protocol.witness import CLAIMED, Held, Stage, Violation, Witness
from tests.support.settings import build

T = TypeVar("T")

NAMES = ("one", "two")
MAX_DEPTH, MAX_DEAD, MAX_DELIVERIES = 5, 2, 4
CAPS = Caps(MAX_DEAD, 3_600_000, 3_600_000)
LARGE = 1000  # bytes above which an alert is in an object
EVENTS = {  # a key of its own, which is large, and a firing with its resolution
    "a": Alert(incident="h:a", host="h", name="a", timestamp=1000, annotations={"log": "x" * LARGE}),
    "f": Alert(incident="h:i", host="h", name="i", timestamp=1000),
    "r": Alert(incident="h:i", host="h", name="i", timestamp=2000, status=Status.RESOLVED),
}
KEYS = list(EVENTS)
SOON = 10.0  # seconds; what waits since the dead letters are at their cap waits for longer
SETTLING = {Move.DELIVER, Move.SUPERSEDE, Move.WAIT, Move.DIE}
CARE = Care(None, 3_600_000)  # a lease that nobody waits for the end of
SPENT = (Later(0, spends=True), Dead(Reason.ATTEMPTS))  # what may follow from an attempt
_replay, _discard, _accept = (Script("ops", name) for name in ("replay", "discard", "accept"))


class Replica(Struct, eq=False):
    """What one process has in hand, per destination."""

    name: str
    consumer: str
    hand: dict[str, list[Held]]


class World:
    """One example's servers, replicas and witnesses. `begin` empties the server first."""

    def __init__(self, redis: Redis, *, cluster: bool) -> None:
        self.redis = redis
        self._wire = Wire(redis)
        self._starts = count(1)
        self._appenders = [self._appender_to(names, cluster) for names in (NAMES[:1], NAMES)]

    def _appender_to(self, names: Sequence[str], cluster: bool) -> Appender:
        settings = build(
            destinations=names,
            queue=Queue(max_depth=MAX_DEPTH, max_dead=MAX_DEAD),
            ingest=Ingest(inline_limit=Size(LARGE)),
            objects=Objects(url="memory://protocol"),
        )
        return Appender(self.redis, settings, Router(settings), cluster=cluster)

    async def begin(self, *, two: bool) -> None:
        """Everything new, for one destination or two."""
        await self.redis.flushall()
        names = NAMES if two else NAMES[:1]
        self._appender = self._appenders[two]
        self.keys = {name: Destination(NAMESPACE, name) for name in names}
        self.witnesses = {name: Witness(MAX_DEAD) for name in names}
        self.replicas = [self._replica(name) for name in ("A", "B")]
        self.suspects = dict.fromkeys(names, "")
        self.probes: dict[str, Held | None] = dict.fromkeys(names)
        for at in self.keys.values():
            await make_group(self.redis, at)
        self.pictures = await self._look()

    def _replica(self, name: str) -> Replica:
        return Replica(name, f"{name}-{next(self._starts)}", {name: [] for name in self.keys})

    async def _look(self) -> dict[str, Picture]:
        return await look(self.redis, list(self.keys), KEYS)

    async def _checked(self, name: str, events: dict[str, Collection[Move]]) -> None:
        """The step is over; only this destination's records of these keys may have changed."""
        before, self.pictures = self.pictures, await self._look()
        for each, witness in self.witnesses.items():
            witness.moved(before[each], self.pictures[each], events if each == name else {})
            witness.check(self.pictures[each])

    async def _try(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except ResponseError as fault:
            if kind_of(fault) is not Kind.NOGROUP:
                raise
        await make_group(self.redis, self.keys[name])
        return await call()

    # Senders

    async def append(self, keys: Sequence[str], *, other: bool) -> None:
        """One request with these keys, in this order; `other` content than they had before."""
        before = self.pictures
        events = [Event(replace(EVENTS[key], summary="other" if other else None), key=key) for key in keys]
        stored = await self._insist(events)
        after = self.pictures = await self._look()
        if stored is None and not any(
            p.depth >= MAX_DEPTH and len(p.dead) >= MAX_DEAD for p in after.values()
        ):
            raise Violation("refused although there is room")
        told: Collection[Move] = {Move.APPEND, Move.REFUSE, Move.APPEND_AGAIN}
        for name, witness in self.witnesses.items():
            safe = [s.key for s in stored or () if name in (*s.destinations, *s.dead)]
            if stored is not None and len(safe) != len(keys):
                raise Violation(f"{name} is missing in {stored}")
            witness.appended(before[name], after[name], safe)
            witness.moved(before[name], after[name], dict.fromkeys(keys, told))
            witness.check(after[name])

    async def _insist(self, events: list[Event]) -> list[Stored] | None:
        """As senders do: again and again, unless there is no room."""
        for _ in range(10):
            try:
                return await self._appender.submit(events)
            except Unavailable as fault:
                if "full" in fault.detail:
                    return None
                for witness in self.witnesses.values():
                    witness.left += len(events)  # a script that fails half-way lists too much
        raise Violation(f"{events} is never stored")

    async def copy(self, name: str, key: str) -> None:
        """Another entry of the key, as one gets by replaying two dead letters of it."""
        at, alert = self.keys[name], replace(EVENTS[key], key=key)
        pipeline = self.redis.pipeline()
        pipeline.xadd(at.stream, {"key": key, "alert": encode(alert), "attempt": "0", "first_at": "1000"})
        pipeline.hincrby(at.ledger, "accepted", 1)
        await pipeline.execute()
        self.witnesses[name].replayed([key])
        await self._checked(name, {})

    # Replicas

    async def take(self, replica: Replica, name: str, most: int, *, careful: bool = False) -> None:
        """Promote what is due, read what is new."""
        await self._in_order(name)
        at, care = self.keys[name], CARE if careful else None
        taken = await self._try(name, lambda: take(self._wire, at, replica.consumer, most, care=care))
        self._hold(replica, name, taken.entries, just_read=True)
        if careful and len(taken.entries) > (taken.probe if taken.gate else most):
            raise Violation(f"read {len(taken.entries)} behind a gate that is {taken.gate or 'open'}")
        if taken.probe:
            if self.probes[name] is not None:
                raise Violation("a second probe beside one that is under way")
            self.probes[name] = replica.hand[name][-1]
        await self._checked(name, {})

    async def _in_order(self, name: str) -> None:
        """What is due is due in the order of its ids, so that an example runs the same again."""
        soon = {
            member: 0.0
            for member, due in self.pictures[name].retry.items()
            if 0 < due < (time.time() + SOON) * 1000
        }
        if soon:
            await self.redis.zadd(self.keys[name].retry, soon)

    def _hold(
        self, replica: Replica, name: str, entries: Sequence[Entry], *, just_read: bool = False
    ) -> None:
        self.witnesses[name].handed(replica.consumer, entries)
        for entry in entries:
            held = Held(replica.consumer, entry, read(entry), just_read)
            replica.hand[name].append(held)
            self.witnesses[name].start(held)

    async def claim(self, replica: Replica, name: str, most: int) -> None:
        """Of what was taken, the first `most`."""
        hand = replica.hand[name]
        held = sorted([each for each in hand if each.stage is Stage.TAKEN][:most], key=_order)
        if not held:
            return
        at, wanted = self.keys[name], [each.delivery for each in held]
        just_read = await self._just_read() if all(each.just_read for each in held) else None
        verdicts = await self._try(
            name, lambda: claim(self._wire, at, replica.consumer, CAPS.record_ttl, wanted, just_read)
        )
        for each, verdict in zip(held, verdicts, strict=True):
            self.witnesses[name].claimed(each, verdict)
            if each.stage is Stage.TAKEN:
                replica.hand[name].remove(each)
        events: dict[str, Collection[Move]] = {}
        for each in held:
            forced = {Move.CLAIM_FORCED} if each.delivery.force else set()
            events[each.delivery.key] = {Move.CLAIM, *forced, *events.get(each.delivery.key, ())}
        await self._checked(name, events)

    async def _just_read(self) -> JustRead:
        """As if no time had passed since the read."""
        seconds, micros = await self.redis.time()
        return JustRead(seconds * 1000 + micros // 1000 + 900, self._wire.connections)

    def _time_has_passed(self, name: str, entries: Sequence[Entry]) -> None:
        """Nobody has just read these."""
        ids = {entry.id for entry in entries}
        for held in self.witnesses[name].open:
            if held.entry.id in ids:
                held.just_read = False

    def send(self, replica: Replica, name: str, *, answered: bool) -> None:
        """Everything claimed reaches the destination."""
        for held in replica.hand[name]:
            if held.stage is Stage.DELIVER and not held.reached and needless(held) is None:
                self.witnesses[name].sent(held, answered=answered)

    async def settle(
        self,
        replica: Replica,
        name: str,
        most: int,
        otherwise: Settlement,
        *,
        told: bool = True,
        gone: bool = False,
    ) -> None:
        """The first `most` in hand; `otherwise` is what becomes of those not known to be delivered; `gone` is
        what the destination says of those."""
        batch = [(held, _settlement(held, otherwise)) for held in replica.hand[name][:most]]
        if not batch:
            return
        at = self.keys[name]
        items = [self._settling(name, held, what, gone) for held, what in batch]
        answers = await self._try(name, lambda: settle(self._wire, at, replica.consumer, CAPS, items))
        for (held, what), answer in zip(batch, answers, strict=True):
            waits = answer in (Settled.WAITS, Settled.SPARED)
            carried = Later(30, spends=False) if waits else what
            if held is self.probes[name]:
                self.probes[name] = None
            self.witnesses[name].settled(held, carried, answer, told=told)
            if told or answer is Settled.FENCED:
                replica.hand[name].remove(held)
        await self._checked(name, {held.delivery.key: SETTLING for held, _ in batch})
        self._spared(name, [h for (h, _), a in zip(batch, answers, strict=True) if a is Settled.SPARED])

    def _settling(self, name: str, held: Held, what: Settlement, gone: bool) -> Settling:
        tried = gone and held.stage is Stage.DELIVER and needless(held) is None and what in SPENT
        attempt = Attempt(OutcomeKind.GONE, 0.1) if tried else None
        probe = held is self.probes[name]
        return Settling(held.entry, held.delivery, what, held.stage in CLAIMED, attempt, probe)

    def _spared(self, name: str, spared: list[Held]) -> None:
        """What waits behind a gate that is gone has spent nothing."""
        for held in spared:
            record = self.pictures[name].records[held.delivery.key]
            if record and record.entry_id == held.entry.id and record.attempts != held.entry.attempts:
                raise Violation(f"{held} was spared and has spent an attempt: {record}")

    def crash(self, replica: Replica) -> None:
        """It forgets everything and comes back under a new name."""
        fresh = self._replica(replica.name)
        replica.consumer, replica.hand = fresh.consumer, fresh.hand

    async def reclaim(
        self, replica: Replica, name: str, *, most: int = 100, careful: bool = True, alone: str = ""
    ) -> None:
        """From everybody, as if they had stood still; not `careful`: also what is in its own hand."""
        at, in_work = self.keys[name], [held.entry.id for held in replica.hand[name] if careful]
        found = await self._try(
            name,
            lambda: reclaim(
                self.redis,
                at,
                replica.consumer,
                idle=0,
                most=most,
                start="-",
                in_work=in_work,
                alone=alone,
            ),
        )
        if {entry.id for entry in found.entries} & set(in_work):
            raise Violation("reclaimed what is in work here")
        if not alone and any(entry.deliveries > 2 for entry in found.entries):
            raise Violation("a suspect was taken among others")
        self.suspects[name] = found.suspect
        self._time_has_passed(name, found.entries)
        self._hold(replica, name, found.entries)
        self.witnesses[name].reclaimed((await self._look())[name])
        await self._checked(name, {})

    async def find(self, replica: Replica, name: str) -> None:
        """What is pending under nobody; what is in hand here becomes its own again."""
        at, in_work = self.keys[name], {held.entry.id: held.entry for held in replica.hand[name]}
        own = list(in_work.values())
        _, entries = await self._try(
            name, lambda: find(self.redis, at, replica.consumer, most=100, start="-", in_work=own)
        )
        if {entry.id for entry in entries} & set(in_work):
            raise Violation("found what is in work here")
        self._hold(replica, name, entries)
        self.witnesses[name].loose = False
        self.witnesses[name].regained(replica.consumer, own, (await self._look())[name])
        await self._checked(name, {})

    async def keep_alive(self, replica: Replica, name: str) -> None:
        """Changes nothing, and tells what is not its own any more."""
        witness, ids = self.witnesses[name], sorted({held.entry.id for held in replica.hand[name]})
        gone, vanished = await self._try(
            name, lambda: keep_alive(self.redis, self.keys[name], replica.consumer, ids)
        )
        own = [i for i in ids if witness.owners.get(i, ("", 0))[0] == replica.consumer]
        entries = self.pictures[name].entries
        if set(gone) != set(ids) - set(own) or set(vanished) != set(own) - set(entries):
            raise Violation(f"keep_alive said {gone} and {vanished} of {ids}")
        await self._checked(name, {})

    async def reap(self, name: str) -> None:
        """Whoever owns nothing goes."""
        await self._try(name, lambda: reap(self.redis, self.keys[name], silence=0))
        await self._checked(name, {})

    # Operators

    async def replay(self, name: str, *, force: bool) -> None:
        """The oldest dead letter."""
        at, before = self.keys[name], self.pictures[name]
        touched = [at.stream, at.dead, at.ledger, at.retry]
        words = ["limit=1", f"max_depth={MAX_DEPTH}", *(["force"] if force else [])]
        await _replay(self.redis, touched, words)
        after = (await self._look())[name]
        self.witnesses[name].replayed(before.dead[i] for i in before.dead if i not in after.dead)
        await self._checked(name, {})

    async def discard(self, name: str, most: int) -> None:
        """The oldest dead letters."""
        at, ids = self.keys[name], list(self.pictures[name].dead)[:most]
        if ids:
            await _discard(self.redis, [at.dead, at.ledger, at.objects], ids)
        await self._checked(name, {})

    async def shut(self, name: str, state: str) -> None:
        """Something has closed the gate, and its time is over, where it has any."""
        self.probes[name] = None
        await self.redis.delete(self.keys[name].gate)
        await self.redis.hset(self.keys[name].gate, mapping={"state": state, "until": "1"})

    async def resume(self, name: str) -> None:
        """By hand: open, no ramp, no probe under way."""
        self.probes[name] = None
        await self.redis.delete(self.keys[name].gate)

    async def accept(self, name: str) -> None:
        """Book what vanished; nothing else may be missing."""
        at, adrift = self.keys[name], self.witnesses[name].adrift
        booked = await _accept(self.redis, [at.stream, at.retry, at.dead, at.ledger], [adrift, 0])
        if booked[:3] != [adrift, 0, 1]:
            raise Violation(f"accepted {booked}, vanished {adrift}")
        await self._checked(name, {})

    # Fate

    async def vanish(self, name: str, which: int) -> None:
        """An entry is deleted by hand; those in work first."""
        entries, owners = self.pictures[name].entries, self.witnesses[name].owners
        entry_id = sorted(entries, key=lambda each: each not in owners)[which % len(entries)]
        key = entries[entry_id]
        await self.redis.xdel(self.keys[name].stream, entry_id)
        self.witnesses[name].vanish(entry_id, key)
        await self._checked(name, {})

    async def forget(self, name: str, key: str) -> None:
        """A record's time is over."""
        await self.redis.delete(self.keys[name].record(key))
        self.witnesses[name].forget(key)
        await self._checked(name, {key: {Move.EXPIRE}})

    async def remove_consumer(self, replica: Replica, name: str) -> None:
        """XGROUP DELCONSUMER by hand."""
        if self.pictures[name].pending is not None:
            await self.redis.xgroup_delconsumer(self.keys[name].stream, GROUP, replica.consumer)
        self.witnesses[name].disowned(replica.consumer)
        await self._checked(name, {})

    async def destroy_group(self, name: str) -> None:
        """XGROUP DESTROY by hand; whoever misses it makes it again."""
        await self.redis.xgroup_destroy(self.keys[name].stream, GROUP)
        self.witnesses[name].disowned(None)
        await self._checked(name, {})

    async def pass_time(self, name: str) -> None:
        """Everything that waits is due."""
        retry = self.pictures[name].retry
        if retry:
            await self.redis.zadd(self.keys[name].retry, dict.fromkeys(retry, 0.0))
        await self._checked(name, {})

    async def drain(self) -> None:
        """Everybody crashes; then one replica alone must bring all of it to an end."""
        for replica in self.replicas:
            self.crash(replica)
        for name, witness in self.witnesses.items():
            await self.resume(name)
            await self._drain(self.replicas[0], name)
            await self.accept(name)
            witness.account()

    async def _drain(self, replica: Replica, name: str) -> None:
        rounds = 10 + 3 * self.pictures[name].depth
        for _ in range(rounds):
            await self.pass_time(name)
            await self.discard(name, MAX_DEAD)
            await self.reclaim(replica, name)
            if self.suspects[name]:
                await self.reclaim(replica, name, alone=self.suspects[name])
            await self.find(replica, name)
            await self.take(replica, name, 100)
            await self.claim(replica, name, 100)
            self.send(replica, name, answered=True)
            await self.settle(replica, name, 100, Later(0, spends=False))
            picture = self.pictures[name]
            if not picture.depth and not picture.pending:
                return
        raise Violation(f"{name} is stuck after {rounds} rounds: {self.pictures[name]}")


def _order(held: Held) -> tuple[int, ...]:
    return tuple(int(part) for part in held.entry.id.split("-"))


def needless(held: Held) -> Settlement | None:
    """What becomes of a claimed delivery that is not sent, as in `Lane`."""
    waiting = held.entry.fields.get(b"reason")
    if waiting is not None:
        return Dead(Reason(waiting.decode()))
    if held.entry.deliveries > MAX_DELIVERIES:
        return Dead(Reason.MAX_DELIVERIES)
    return None


def _settlement(held: Held, otherwise: Settlement) -> Settlement:
    match held.stage:
        case Stage.DUPLICATE:
            return Duplicate()
        case Stage.SUPERSEDED:
            return Superseded()
        case Stage.TAKEN | Stage.LOOK_AGAIN:
            return Later(0, spends=False)
        case Stage.DELIVER:
            if held.reached and held.answered:
                return Delivered(200)
            return needless(held) or otherwise

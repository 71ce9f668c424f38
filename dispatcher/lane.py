"""The way of one destination's deliveries in one replica: take, claim, deliver, decide, settle.

1. `run` takes no more entries than there are free slots, and waits for the bell when there are none.
2. `start` reads them and claims them in one call; what can't be sent is concluded at once.
   What was too large for Redis is got by the fetcher (`fetch.py`).
3. The deliverer (`deliver.py`) hands them to the destination, and decides what the outcome means.
4. The settler (`settler.py`) carries decisions out, batch by batch; a slot is free when that is done.

Whatever Redis does is waited out: what is in hand stays in hand.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Iterable, Sequence

from msgspec.structs import replace
from redis import exceptions as errors

from common import keys, settings
from common.alert import Malformed, TooNew
from common.outcomes import Dead, Duplicate, Later, Reason, Settlement, Superseded
from common.policy import record_ttl, retry_policy
from common.wire import Wire
from dispatcher.batches import Batches, slots
from dispatcher.claim import JustRead, Verdict, claim
from dispatcher.decide import needless
from dispatcher.deliver import Deliverer
from dispatcher.destinations.base import Delivery
from dispatcher.entry import TOO_NEW, Entry, read
from dispatcher.erase import Eraser
from dispatcher.fetch import Fetcher
from dispatcher.outlook import Outlook
from dispatcher.replica import Replica
from dispatcher.settle import Caps
from dispatcher.settler import Settler
from dispatcher.settling import Settling
from dispatcher.take import Taken, take, wait_for_bell
from dispatcher.trouble import Trouble

LOOK_AGAIN = 1.0  # seconds until another copy in flight is looked at again, with as much jitter
MOST = 1000  # entries in one take, and so in one claim: Lua's unpack stops at 8,000
SURELY_MINE = 1000  # ms after a read in which its entries are nobody else's; the claim script allows no more


class Lane:
    """One destination in this process."""

    def __init__(self, replica: Replica, destination: settings.Destination) -> None:
        self.replica = replica
        self.name = destination.name
        self.keys = keys.Destination(replica.settings.redis.namespace, destination.name)
        self.metrics = replica.metrics.of[destination.name]
        self.in_work: dict[str, Entry] = {}
        self.trouble = Trouble(replica, destination.name, self.keys)
        self.took_at = -math.inf  # when Redis last answered a take, on the monotonic clock
        self.step = asyncio.Lock()  # held from a take, or a reclaim, until its entries are in work
        self._slots = slots(destination)
        self._policy = retry_policy(destination)
        remember = replica.settings.dedupe.remember
        ttl = record_ttl(self._policy, remember)
        self._caps = Caps(replica.settings.queue.max_dead, ttl.ms, remember.ms, destination.breaker)
        self._changed = asyncio.Event()
        self._eraser = Eraser(replica, destination.name)
        self.settler = Settler(
            replica, self.keys, self._caps, self.metrics, self.trouble, self._eraser, self._settled
        )
        self._deliverer = Deliverer(replica, destination, self._policy, self._post, self.trouble)
        self._deliver = self._deliverer.deliver
        self._batches: Batches | None = None
        if destination.batch is not None:
            self._batches = Batches(
                replica, self.keys, destination, destination.batch, self._deliverer, self.trouble, self._post
            )
            self._deliver = self._gather
        self._fetcher = Fetcher(replica, self.name, self._deliver, self._conclude_claimed)
        self._taking = Wire(replica.redis)
        self._claiming = Wire(replica.redis)
        self._bell = Wire(replica.bell)
        self._surely_mine = min(SURELY_MINE, replica.settings.dispatcher.visibility_timeout.ms // 6)
        # Never all slots at once: while Redis settles one part, the next is read and sent.
        self._most = max(1, min(MOST, self._slots // 4))
        self.outlook = Outlook(destination)

    @property
    def halted(self) -> bool:
        """Whether it takes nothing on purpose: it is to stop, or a suspect is delivered alone."""
        return self.replica.stopping.is_set() or not self.replica.quarantine.open.is_set()

    @property
    def free(self) -> int:
        """Slots that are free."""
        return self._slots - len(self.in_work)

    async def run(self) -> None:
        """Until the replica stops."""
        stopping = self.replica.stopping
        while not stopping.is_set():
            try:
                await self._round()
                self.trouble.over()
            except errors.RedisError as fault:
                await self.trouble.wait_out(fault)
        self._end_gathering()

    async def _round(self) -> None:
        replica = self.replica
        while self.free <= 0 and not replica.stopping.is_set():
            await self._change()
        async with self.step:
            free = min(self.free, self._most)
            taken = None if self.halted else await self._take(free)
        if taken is None:
            await replica.quarantine.open.wait()
        elif taken.wait >= 0 or len(taken.entries) < free:
            await self._rest(taken)

    async def _take(self, free: int) -> Taken:
        replica, care = self.replica, self.outlook.care()
        before, connections = replica.clock.now(), self._claiming.connections
        taken = await take(self._taking, self.keys, replica.consumer, free, care=care)
        self.outlook.see(taken)
        self.took_at = time.monotonic()
        replica.clock.set(taken.now)
        replica.pulse.beat()
        replica.metrics.progress.set_to_current_time()
        just_read = JustRead(min(before, taken.now) + self._surely_mine, connections)
        if care is None and (taken.gate or taken.ramp):
            self.hand_back(taken.entries)
        elif len(taken.entries) == free:  # more is waiting: it is read while these are claimed
            replica.tasks.create_task(self._claim_and_follow(self._open(taken.entries), just_read))
        else:
            await self._claim_and_follow(self._open(taken.entries), just_read)
        return taken

    async def _rest(self, taken: Taken) -> None:
        """Wait for the bell or the next retry, or until what gate, ramp and rate hold back may be read."""
        longest = min(1000, self.replica.settings.dispatcher.visibility_timeout.ms // 6)
        if taken.wait >= 0:
            await self.replica.pause(min(taken.wait, longest) / 1000)
            return
        if taken.next_due >= 0:
            longest = min(longest, taken.next_due - self.replica.clock.now())
        if longest > 0:
            await wait_for_bell(self._bell, self.keys, taken.last, longest)

    async def take_over(self, entries: Sequence[Entry]) -> None:
        """Begin with entries that were reclaimed. Behind a closed gate they wait with the others; they use up
        what the rate allows."""
        if self.outlook.closed:
            self.hand_back(entries)
            return
        self.outlook.made_besides(len(entries))
        await self.start(entries)

    async def start(self, entries: Sequence[Entry]) -> None:
        """Claim entries and begin with those that are ours to deliver."""
        await self._claim_and_follow(self._open(entries))

    def _open(self, entries: Sequence[Entry]) -> list[tuple[Entry, Delivery]]:
        """Put entries in work; those that can be read."""
        readable: list[tuple[Entry, Delivery]] = []
        for entry in entries:
            if entry.id in self.in_work:
                continue  # handed out anew since the group was made again; it is being sent
            self.in_work[entry.id] = entry
            try:
                readable.append((entry, read(entry)))
            except Malformed as fault:
                self._conclude(entry, None, Dead(Reason.MALFORMED, error=str(fault)), claimed=False)
            except TooNew:
                self._conclude(entry, None, Later(TOO_NEW, spends=False), claimed=False)
        return readable

    async def _claim_and_follow(
        self, readable: list[tuple[Entry, Delivery]], just_read: JustRead | None = None
    ) -> None:
        if not readable:
            return
        if self.replica.stopping.is_set():
            self.hand_back(entry for entry, _ in readable)
            return
        verdicts = await self._claim([delivery for _, delivery in readable], just_read)
        now = self.replica.clock.now()
        for (entry, delivery), verdict in zip(readable, verdicts, strict=True):
            self._follow(entry, delivery, verdict, now)
        if not self.replica.quarantine.open.is_set():
            self._end_gathering()  # a suspect waits for all that is in work to end

    def hand_back(self, entries: Iterable[Entry]) -> None:
        """Give entries that were not claimed back to the fleet, at once and unspent."""
        for entry in entries:
            self.in_work[entry.id] = entry
            self._conclude(entry, None, Later(0, spends=False), claimed=False)

    async def _claim(self, deliveries: list[Delivery], just_read: JustRead | None) -> list[Verdict]:
        replica = self.replica
        while True:
            try:
                return await claim(
                    self._claiming,
                    self.keys,
                    replica.consumer,
                    self._caps.record_ttl,
                    deliveries,
                    just_read,
                )
            except errors.RedisError as fault:
                if replica.stopping.is_set():
                    return [Verdict.NOT_MINE] * len(deliveries)  # pending: others will reclaim it
                await self.trouble.wait_out(fault)
                just_read = None  # whoever answers next may be another server

    def _follow(self, entry: Entry, delivery: Delivery, verdict: Verdict, now: int) -> None:
        match verdict:
            case Verdict.DELIVER:
                ends: Settlement | None = Later(0, spends=False)
                if not self.replica.stopping.is_set():
                    most = self.replica.settings.dispatcher.max_deliveries
                    ends = needless(entry, delivery, now, self._policy, most)
                if delivery.reference is not None and self._deliverer.needs_alert(entry, ends):
                    self._fetcher.fetch(entry, delivery, ends)
                elif ends is None:
                    self._deliver(entry, delivery)
                else:
                    self._conclude_claimed(entry, delivery, ends)
            case Verdict.DUPLICATE:
                self._conclude(entry, delivery, Duplicate(), claimed=False)
            case Verdict.LOOK_AGAIN:
                delay = LOOK_AGAIN * (1 + random.random())  # noqa: S311 - jitter, no secret
                self._conclude(entry, delivery, Later(delay, spends=False), claimed=False)
            case Verdict.SUPERSEDED:
                self._conclude(entry, delivery, Superseded(), claimed=True)
            case Verdict.NOT_MINE:
                self.metrics.fenced.inc()
                self._release(entry.id)

    def _conclude_claimed(self, entry: Entry, delivery: Delivery, settlement: Settlement) -> None:
        self._deliverer.conclude(Settling(entry, delivery, settlement, claimed=True))

    def _gather(self, entry: Entry, delivery: Delivery) -> None:
        if self._batches is not None:
            self._batches.deliver((entry, delivery), at_once=self.outlook.is_probe(entry.id))

    def _end_gathering(self) -> None:
        if self._batches is not None:
            self._batches.end()

    def _conclude(
        self, entry: Entry, delivery: Delivery | None, settlement: Settlement, *, claimed: bool
    ) -> None:
        self._post(Settling(entry, delivery, settlement, claimed))

    def _post(self, item: Settling) -> None:
        if item.attempt is None and isinstance(item.settlement, Dead):
            self._deliverer.teller.died(item.entry, item.delivery, item.settlement)
        if self.outlook.ends_probe(item.entry.id):
            item = replace(item, probe=True)
        self.settler.post(item)

    def _settled(self, batch: Sequence[Settling]) -> None:
        for item in batch:
            self.in_work.pop(item.entry.id, None)
        self._changed.set()

    def _release(self, entry_id: str) -> None:
        if self.outlook.ends_probe(entry_id):
            self.settler.give_back()
        self.in_work.pop(entry_id, None)
        self._changed.set()

    async def _change(self) -> None:
        """Wait until fewer entries are in work."""
        self._changed.clear()
        await self._changed.wait()

    async def idle(self) -> None:
        """Return when nothing is being taken and nothing is in work."""
        async with self.step:
            pass
        while self.in_work:
            self._end_gathering()
            await self._change()

    async def close(self) -> None:
        """Let go of attempts that were not finished in time; their entries stay pending for the others."""
        await self._fetcher.close()
        await self._deliverer.close()
        if self._batches is not None:
            await self._batches.close()
        await self._taking.close()
        await self._claiming.close()
        await self._bell.close()
        await self.settler.close()
        await self._eraser.close()
        self.in_work.clear()
        self._changed.set()  # nobody is to wait for them here

"""Hands deliveries to their destination, and makes settlements of what comes of it: between claim and settle.

Takes a claimed delivery and does not wait for it; posts one settlement when its attempt has ended and what it
made of the alert, if anything, is with those after it. A bug in a kind of destination is a failed attempt,
and stops nobody else.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from time import perf_counter
from typing import cast

from msgspec.structs import replace

from common.log import Log
from common.outcomes import Dead, Delivered, Outcome, OutcomeKind, Settlement
from common.policy import Policy
from common.settings import Destination
from dispatcher.decide import asked_for, decide, is_patient, split
from dispatcher.destinations.base import Batching, Delivery, checked
from dispatcher.destinations.kinds import make
from dispatcher.entry import Entry
from dispatcher.follow_up import FollowUp
from dispatcher.gather import Member
from dispatcher.replica import Replica
from dispatcher.settling import Attempt, Settling
from dispatcher.spans import Attempted, Spans
from dispatcher.tell import Teller
from dispatcher.trouble import Trouble

log = Log("dispatcher")


class Deliverer:
    """The attempts of one lane. `post` is given each one's settlement."""

    def __init__(
        self,
        replica: Replica,
        destination: Destination,
        policy: Policy,
        post: Callable[[Settling], None],
        trouble: Trouble,
    ) -> None:
        self._replica = replica
        self._destination = destination
        self._policy = policy
        self._post = post
        self._kind = make(destination) if replica.sink is None else replica.sink(destination)
        self._spans = Spans(destination.name, replica.consumer, replica.telemetry)
        self.teller = Teller(destination.name, replica.consumer)
        self._follow_up = FollowUp(replica, destination, trouble)
        self._attempts: set[asyncio.Task[None]] = set()

    def deliver(self, entry: Entry, delivery: Delivery) -> None:
        """Begin the attempt."""
        started = perf_counter()
        sent, span = delivery, None
        if delivery.trace is not None or self._spans.telemetry is not None:
            (sent,), span = self._spans.begin((delivery,))
        try:
            outcome = self._kind.deliver(sent)
            if isinstance(outcome, Outcome):
                outcome = checked(outcome)
        except Exception as bug:  # noqa: BLE001 - a bug in a kind of destination must not stop the others
            outcome = self._broke(delivery, bug)
        if isinstance(outcome, Outcome):
            self._finish(entry, delivery, outcome, perf_counter() - started, span)
        else:
            self._go_on(self._wait_for(entry, delivery, outcome, started, span))

    async def attempt(self, members: Sequence[Member]) -> None:
        """One attempt for all of them together; returns when it has ended."""
        started = perf_counter()
        entry, delivery = members[0]
        sent, span = self._spans.begin([each for _, each in members])
        try:
            if len(members) == 1:
                outcome = self._kind.deliver(sent[0])
            else:
                outcome = cast(Batching, self._kind).deliver_batch(sent)
            told = checked(outcome if isinstance(outcome, Outcome) else await outcome)
        except Exception as bug:  # noqa: BLE001 - the same
            told = self._broke(delivery, bug)
        seconds = perf_counter() - started
        if len(members) == 1:
            self._finish(entry, delivery, told, seconds, span)
            return
        if span is not None:
            span.end(told)
        for place, (entry, delivery) in enumerate(members):
            self._decide(entry, delivery, told, seconds, members=len(members), shared=place > 0)

    def conclude(self, item: Settling) -> None:
        """Post a settlement; instead of a dead letter what the kind has for that case, if it has anything."""
        dead, delivery = item.settlement, item.delivery
        known = delivery if delivery is not None and delivery.reference is None else None
        instead = self._instead(item, known, dead) if isinstance(dead, Dead) and known else None
        if instead is None or delivery is None:
            self._post(item)
        else:
            self._go_on(self._end_instead(item, delivery, instead))

    def needs_alert(self, entry: Entry, needless: Settlement | None) -> bool:
        """Whether the alert is looked at: to be sent, or for what ends it instead of a dead letter."""
        return needless is None or (isinstance(needless, Dead) and self._may_end_instead(entry))

    async def close(self) -> None:
        """Let go of attempts that were not finished in time; their entries stay pending for the others."""
        for task in self._attempts:
            task.cancel()
        await asyncio.gather(*self._attempts, return_exceptions=True)
        await self._follow_up.close()
        await self._kind.close()

    def _go_on(self, work: Coroutine[None, None, None]) -> None:
        task = self._replica.tasks.create_task(work)
        self._attempts.add(task)
        task.add_done_callback(self._attempts.discard)

    async def _wait_for(
        self,
        entry: Entry,
        delivery: Delivery,
        outcome: Awaitable[Outcome],
        started: float,
        span: Attempted | None,
    ) -> None:
        try:
            told = checked(await outcome)
        except Exception as bug:  # noqa: BLE001 - the same
            told = self._broke(delivery, bug)
        self._finish(entry, delivery, told, perf_counter() - started, span)

    def _broke(self, delivery: Delivery, bug: Exception) -> Outcome:
        self.teller.broke(delivery, bug)
        return Outcome(OutcomeKind.FAILED, error=f"internal: {type(bug).__name__}")

    def _finish(
        self, entry: Entry, delivery: Delivery, outcome: Outcome, seconds: float, span: Attempted | None
    ) -> None:
        if span is not None:
            span.end(outcome)
        if outcome.then is None:
            self._decide(entry, delivery, outcome, seconds)
        else:
            self._go_on(self._pass_on(entry, delivery, outcome, seconds))

    async def _pass_on(self, entry: Entry, delivery: Delivery, outcome: Outcome, seconds: float) -> None:
        fault = await self._append(delivery, outcome)
        if fault:
            outcome = Outcome(OutcomeKind.FAILED, outcome.status, fault)
        self._decide(entry, delivery, outcome, seconds)

    async def _end_instead(self, item: Settling, delivery: Delivery, instead: Outcome) -> None:
        if not await self._append(delivery, instead):
            tried = item.attempt is not None
            told = delivery if tried else replace(delivery, attempt=delivery.attempt - 1)
            item = replace(item, settlement=Delivered(instead.status), delivery=told)
        self._post(item)

    async def _append(self, delivery: Delivery, outcome: Outcome) -> str:
        """Why what goes on is not with all that come after, "" when it is."""
        try:
            full: list[str] = []
            if outcome.then is not None:
                full = await self._follow_up.append(outcome.then, delivery.trace)
        except Exception as bug:  # noqa: BLE001 - the same
            return self._broke(delivery, bug).error
        return f"no room at {', '.join(full)}: queue and dead letters are full" if full else ""

    def _may_end_instead(self, entry: Entry) -> bool:
        """Not what goes on killing whoever works on it."""
        most = 2 * self._replica.settings.dispatcher.max_deliveries
        return hasattr(self._kind, "instead") and entry.deliveries <= most

    def _instead(self, item: Settling, delivery: Delivery, dead: Dead) -> Outcome | None:
        """What ends a delivery that is to die, if its kind has anything."""
        if not self._may_end_instead(item.entry):
            return None
        kind = OutcomeKind.FAILED if item.attempt is None else item.attempt.kind
        try:
            told: Outcome | None = self._kind.instead(  # type: ignore[attr-defined]  # the kind has it
                delivery, Outcome(kind, dead.status, dead.error)
            )
        except Exception as bug:  # noqa: BLE001 - the same
            self._broke(delivery, bug)
            return None
        name, key = self._destination.name, delivery.key
        log.warning("ended_instead", destination=name, key=key, reason=dead.reason, error=dead.error)
        return told

    def _decide(
        self,
        entry: Entry,
        delivery: Delivery,
        outcome: Outcome,
        seconds: float,
        *,
        members: int = 1,
        shared: bool = False,
    ) -> None:
        """`members` were in the request; `shared`: this one is not the first of them."""
        cap = self._destination.retry_after_cap
        throttles = 0
        if outcome.kind is OutcomeKind.THROTTLED and outcome.retry_after is not None:
            throttles = entry.throttles + 1
        now = self._replica.clock.now()
        decision = (split(outcome) if members > 1 else None) or decide(
            outcome,
            delivery.attempt,
            delivery.first_at,
            now,
            self._policy,
            cap,
            random.random,
            throttles,
        )
        self.teller.attempt(delivery, outcome, decision, seconds, now, members)
        closes = asked_for(outcome.retry_after, cap) if is_patient(outcome, throttles, self._policy) else 0.0
        attempt = Attempt(outcome.kind, seconds, throttles, closes, shared)
        self.conclude(Settling(entry, delivery, decision, True, attempt))

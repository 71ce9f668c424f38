"""Hands deliveries to their destination, and makes settlements of what comes of it: between claim and settle.

Takes a claimed delivery and does not wait for it; posts one settlement when its attempt has ended. A bug in a
kind of destination is a failed attempt, and stops nobody else.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from time import perf_counter

from common.log import Log
from common.outcomes import Outcome, OutcomeKind
from common.policy import Policy
from common.settings import Destination
from dispatcher.decide import decide
from dispatcher.destinations.base import Delivery
from dispatcher.destinations.kinds import make
from dispatcher.entry import Entry
from dispatcher.replica import Replica
from dispatcher.settle import Attempt, Settling

log = Log("dispatcher")


class Deliverer:
    """The attempts of one lane. `post` is given each one's settlement."""

    def __init__(
        self, replica: Replica, destination: Destination, policy: Policy, post: Callable[[Settling], None]
    ) -> None:
        self._replica = replica
        self._destination = destination
        self._policy = policy
        self._post = post
        self._kind = make(destination)
        self._attempts: set[asyncio.Task[None]] = set()

    def deliver(self, entry: Entry, delivery: Delivery) -> None:
        """Begin the attempt."""
        started = perf_counter()
        try:
            outcome = self._kind.deliver(delivery)
        except Exception as bug:  # noqa: BLE001 - a bug in a kind of destination must not stop the others
            outcome = self._broke(delivery, bug)
        if isinstance(outcome, Outcome):
            self._finish(entry, delivery, outcome, started)
            return
        task = self._replica.tasks.create_task(self._wait_for(entry, delivery, outcome, started))
        self._attempts.add(task)
        task.add_done_callback(self._attempts.discard)

    async def close(self) -> None:
        """Let go of attempts that were not finished in time; their entries stay pending for the others."""
        for task in self._attempts:
            task.cancel()
        await asyncio.gather(*self._attempts, return_exceptions=True)
        await self._kind.close()

    async def _wait_for(
        self, entry: Entry, delivery: Delivery, outcome: Awaitable[Outcome], started: float
    ) -> None:
        try:
            told = await outcome
        except Exception as bug:  # noqa: BLE001 - the same
            told = self._broke(delivery, bug)
        self._finish(entry, delivery, told, started)

    def _broke(self, delivery: Delivery, bug: Exception) -> Outcome:
        log.error("attempt_broke", fault=bug, destination=self._destination.name, key=delivery.key)
        return Outcome(OutcomeKind.FAILED, error=f"internal: {type(bug).__name__}")

    def _finish(self, entry: Entry, delivery: Delivery, outcome: Outcome, started: float) -> None:
        now = self._replica.clock.now()
        decision = decide(
            outcome,
            delivery.attempt,
            delivery.first_at,
            now,
            self._policy,
            self._destination.retry_after_cap,
            random.random,
        )
        if outcome.kind is not OutcomeKind.DELIVERED:
            log.info(
                "attempt",
                destination=self._destination.name,
                key=delivery.key,
                attempt=delivery.attempt,
                outcome=outcome.kind,
                status=outcome.status,
                error=outcome.error,
                decision=type(decision).__name__.lower(),
            )
        attempt = Attempt(outcome.kind, perf_counter() - started)
        self._post(Settling(entry, delivery, decision, True, attempt))

"""Random steps of two replicas, senders, operators and fate, with real scripts on a real server.

Each rule is one step of `World`, which checks after it what must hold; at the end everything must drain. A
failure prints the steps, shortened, and the seed: `PROTOCOL_SEED=<seed> pytest tests/integration/protocol`
runs the same again. `PROTOCOL_EXAMPLES=5000` makes a long run of it. In CI the seed is fixed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from common.outcomes import Dead, Later, Reason, Settlement
from tests.integration.protocol.places import places
from tests.integration.protocol.world import KEYS, Replica, World

some = st.integers(1, 3)
anywhere = st.integers(0, 3)
keys = st.sampled_from(KEYS)
rarely = st.sampled_from([False, False, False, True])
otherwise: st.SearchStrategy[Settlement] = st.sampled_from(
    [Later(0, spends=True), Later(0, spends=False), Dead(Reason.ATTEMPTS)]
)


def needs(what: str) -> Callable[[Any], Any]:
    """The rule is chosen only when there is a place with that."""
    return precondition(lambda machine: bool(places(machine.world, what)))


class Machine(RuleBasedStateMachine):
    """One example."""

    def __init__(self, world: World, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.world = world
        self._loop = loop
        self._sound = False

    def _run(self, step: Coroutine[Any, Any, None]) -> None:
        self._sound = False
        self._loop.run_until_complete(step)
        self._sound = True

    def _at(self, need: str, place: int) -> tuple[Replica, str]:
        found = places(self.world, need)
        return found[place % len(found)]

    def teardown(self) -> None:
        """Nothing is lost, nothing is stuck."""
        if self._sound:
            self._run(self.world.drain())

    @initialize(two=rarely)
    def begin(self, two: bool) -> None:
        self._run(self.world.begin(two=two))

    @rule(keys=st.lists(keys, min_size=1, max_size=3), other=rarely)
    def append(self, keys: list[str], other: bool) -> None:
        self._run(self.world.append(keys, other=other))

    @rule(place=anywhere, key=keys)
    def copy(self, place: int, key: str) -> None:
        self._run(self.world.copy(self._at("queue", place)[1], key))

    @needs("unread")
    @rule(place=anywhere, most=some)
    def take(self, place: int, most: int) -> None:
        self._run(self.world.take(*self._at("unread", place), most))

    @needs("unread")
    @rule(place=anywhere, most=some)
    def take_and_claim(self, place: int, most: int) -> None:
        at = self._at("unread", place)
        self._run(self.world.take(*at, most))
        self._run(self.world.claim(*at, most))

    @needs("unread")
    @rule(place=anywhere)
    def work(self, place: int) -> None:
        at = self._at("unread", place)
        self._run(self.world.take(*at, 3))
        self._run(self.world.claim(*at, 3))
        self.world.send(*at, answered=True)
        self._run(self.world.settle(*at, 6, Later(0, spends=True)))

    @needs("taken")
    @rule(place=anywhere, most=some)
    def claim(self, place: int, most: int) -> None:
        self._run(self.world.claim(*self._at("taken", place), most))

    @needs("sendable")
    @rule(place=anywhere, answer_lost=rarely)
    def send(self, place: int, answer_lost: bool) -> None:
        self._sound = False
        self.world.send(*self._at("sendable", place), answered=not answer_lost)
        self._sound = True

    @needs("hand")
    @rule(place=anywhere, most=some, otherwise=otherwise, answer_lost=rarely)
    def settle(self, place: int, most: int, otherwise: Settlement, answer_lost: bool) -> None:
        self._run(self.world.settle(*self._at("hand", place), most, otherwise, told=not answer_lost))

    @needs("hand")
    @rule(place=anywhere)
    def keep_alive(self, place: int) -> None:
        self._run(self.world.keep_alive(*self._at("hand", place)))

    @needs("hand")
    @rule(place=anywhere)
    def crash(self, place: int) -> None:
        replica, name = self._at("hand", place)
        self.world.crash(replica)
        self._run(self.world.reap(name))

    @needs("pending elsewhere")
    @rule(place=anywhere)
    def reclaim(self, place: int) -> None:
        self._run(self.world.reclaim(*self._at("pending elsewhere", place)))

    @needs("pending")
    @rule(place=anywhere)
    def reclaim_carelessly(self, place: int) -> None:
        self._run(self.world.reclaim(*self._at("pending", place), careful=False))

    @needs("suspect")
    @rule(place=anywhere)
    def reclaim_alone(self, place: int) -> None:
        replica, name = self._at("suspect", place)
        self._run(self.world.reclaim(replica, name, alone=self.world.suspects[name]))

    @needs("loose")
    @rule(place=anywhere)
    def find(self, place: int) -> None:
        self._run(self.world.find(*self._at("loose", place)))

    @needs("dead letter")
    @rule(place=anywhere, force=st.booleans())
    def replay(self, place: int, force: bool) -> None:
        self._run(self.world.replay(self._at("dead letter", place)[1], force=force))

    @needs("dead letter")
    @rule(place=anywhere)
    def discard(self, place: int) -> None:
        self._run(self.world.discard(self._at("dead letter", place)[1], 1))

    @needs("adrift")
    @rule(place=anywhere)
    def accept(self, place: int) -> None:
        self._run(self.world.accept(self._at("adrift", place)[1]))

    @needs("entry")
    @rule(place=anywhere, which=st.integers(0, 2))
    def vanish(self, place: int, which: int) -> None:
        self._run(self.world.vanish(self._at("entry", place)[1], which))

    @needs("entry")
    @rule(place=anywhere, key=keys)
    def forget(self, place: int, key: str) -> None:
        self._run(self.world.forget(self._at("entry", place)[1], key))

    @needs("pending")
    @rule(place=anywhere)
    def remove_consumer(self, place: int) -> None:
        self._run(self.world.remove_consumer(*self._at("pending", place)))

    @needs("pending")
    @rule(place=anywhere)
    def destroy_group(self, place: int) -> None:
        self._run(self.world.destroy_group(self._at("pending", place)[1]))

    @needs("retry")
    @rule(place=anywhere)
    def pass_time(self, place: int) -> None:
        self._run(self.world.pass_time(self._at("retry", place)[1]))


class GateMachine(Machine):
    """The same with a gate that closes, is probed, and opens."""

    @needs("unread")
    @rule(place=anywhere, most=some)
    def take_carefully(self, place: int, most: int) -> None:
        self._run(self.world.take(*self._at("unread", place), most, careful=True))

    @needs("hand")
    @rule(place=anywhere, most=some, otherwise=otherwise, answer_lost=rarely)
    def settle_gone(self, place: int, most: int, otherwise: Settlement, answer_lost: bool) -> None:
        at = self._at("hand", place)
        self._run(self.world.settle(*at, most, otherwise, told=not answer_lost, gone=True))

    @needs("entry")
    @rule(place=anywhere, state=st.sampled_from(["gone", "breaker"]))
    def shut(self, place: int, state: str) -> None:
        self._run(self.world.shut(self._at("entry", place)[1], state))

    @needs("queue")
    @rule(place=anywhere)
    def resume(self, place: int) -> None:
        self._run(self.world.resume(self._at("queue", place)[1]))

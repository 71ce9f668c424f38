"""Where a step does something: replicas and destinations that have what it needs."""

from __future__ import annotations

from collections.abc import Callable

from tests.integration.protocol.witness import Stage
from tests.integration.protocol.world import Replica, World, needless

Holds = Callable[[World, Replica, str], bool]


def _unread(world: World, replica: Replica, name: str) -> bool:
    picture, owners = world.pictures[name], world.witnesses[name].owners
    return bool(picture.retry or set(picture.entries) - set(owners))


def _sendable(world: World, replica: Replica, name: str) -> bool:
    hand = replica.hand[name]
    return any(h.stage is Stage.DELIVER and not h.reached and needless(h) is None for h in hand)


def _elsewhere(world: World, replica: Replica, name: str) -> bool:
    return bool(set(world.witnesses[name].owners) - {held.entry.id for held in replica.hand[name]})


NEEDS: dict[str, Holds] = {
    "queue": lambda world, replica, name: True,
    "unread": _unread,
    "taken": lambda world, replica, name: any(h.stage is Stage.TAKEN for h in replica.hand[name]),
    "sendable": _sendable,
    "hand": lambda world, replica, name: bool(replica.hand[name]),
    "pending": lambda world, replica, name: bool(world.witnesses[name].owners),
    "pending elsewhere": _elsewhere,
    "suspect": lambda world, replica, name: bool(world.suspects[name]),
    "loose": lambda world, replica, name: world.witnesses[name].loose,
    "dead letter": lambda world, replica, name: bool(world.pictures[name].dead),
    "entry": lambda world, replica, name: bool(world.pictures[name].entries),
    "adrift": lambda world, replica, name: world.witnesses[name].adrift > 0,
    "retry": lambda world, replica, name: bool(world.pictures[name].retry),
}


def places(world: World, need: str) -> list[tuple[Replica, str]]:
    """All of them, in an order that an example can rely on."""
    holds = NEEDS[need]
    return [
        (replica, name) for name in world.keys for replica in world.replicas if holds(world, replica, name)
    ]

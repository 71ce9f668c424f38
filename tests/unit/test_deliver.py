"""What a destination's type answers that is no outcome: a failed attempt, and nothing else suffers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from common import keys
from common.outcomes import Later, Outcome, OutcomeKind
from common.policy import retry_policy
from dispatcher import deliver as module
from dispatcher.deliver import Deliverer
from dispatcher.destinations.base import checked
from dispatcher.entry import Entry
from dispatcher.settling import Settling
from dispatcher.trouble import Trouble
from tests.support.deliveries import delivery, webhook
from tests.unit.test_tend import replica

FAILED = OutcomeKind.FAILED
made: Any = Outcome  # nobody checks what others write
WRONG: list[Any] = [
    None,
    "delivered",
    made("failed"),
    made(OutcomeKind.DELIVERED, 20000),
    made(FAILED, "500"),
    made(FAILED, error=None),
    made(FAILED, error="\ud800"),
    made(OutcomeKind.THROTTLED, 429, retry_after=float("nan")),
]


class Kind:
    """Answers at once, or later."""

    def __init__(self, answer: Any, later: bool) -> None:
        self.answer = answer
        self.later = later

    def deliver(self, _: object) -> Any:
        return self._wait() if self.later else self.answer

    async def _wait(self) -> Any:
        return self.answer

    deliver_batch = deliver


@pytest.mark.parametrize("answer", WRONG, ids=repr)
def test_what_is_none(answer: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        checked(answer)


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("members", [0, 1, 2], ids=["deliver", "a batch of one", "a batch"])
async def test_it_counts_as_a_failure(monkeypatch: pytest.MonkeyPatch, members: int, later: bool) -> None:
    told: list[Settling] = []
    destination = webhook()
    for answer in WRONG:
        monkeypatch.setattr(module, "make", lambda _, answer=answer: Kind(answer, later))
        async with asyncio.TaskGroup() as tasks:
            shared = replica(tasks)
            trouble = Trouble(shared, "pager", keys.Destination("redispatch", "pager"))
            deliverer = Deliverer(shared, destination, retry_policy(destination), told.append, trouble)
            member = (Entry("1-1", {}), delivery("k"))
            shared.clock.set(member[1].first_at)
            if members:
                await deliverer.attempt([member] * members)
            else:
                deliverer.deliver(*member)
    assert len(told) == len(WRONG) * max(1, members)
    for item in told:
        assert isinstance(item.settlement, Later)
        assert item.settlement.error.startswith("internal: ")

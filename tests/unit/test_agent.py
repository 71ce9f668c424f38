"""What the agent does with answers, refusals and silence: without a network, at a clock that is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ops.agent import CAP, LONGEST_WAIT, MOST, Agent, measured
from ops.post import Answer, Unreachable

STORED = Answer(201, "{}", None)
INTERVAL = 30.0


class Ingest:
    """Answers what it is told to, in order, then 201; an exception is raised. Remembers what it took."""

    def __init__(self) -> None:
        self.answers: list[Answer | Unreachable] = []
        self.bodies: list[list[Any]] = []

    def post(self, body: bytes) -> Answer:
        self.bodies.append(json.loads(body))
        answer = self.answers.pop(0) if self.answers else STORED
        if isinstance(answer, Unreachable):
            raise answer
        return answer


class Machine:
    """An agent with its ingest; a measurement is a number, `chance` the part of the backoff that is taken."""

    def __init__(self, keep: int = 100, each: int = 1, chance: float = 1.0) -> None:
        self.ingest = Ingest()
        self.said: list[str] = []
        self._numbers = iter(range(10**9))
        self._each = each
        self.agent = Agent(
            self._measure,
            self.ingest.post,
            self.said.append,
            interval=INTERVAL,
            keep=keep,
            chance=lambda: chance,
        )

    def _measure(self) -> list[dict[str, Any]]:
        return [{"n": next(self._numbers)} for _ in range(self._each)]

    @property
    def requests(self) -> list[list[int]]:
        return [[reading["n"] for reading in body] for body in self.ingest.bodies]

    def run(self, until: float, start: float = 1000.0) -> Iterator[float]:
        """The moments at which it was called."""
        now = start
        while now <= start + until:
            yield now - start
            now = self.agent.step(now)


def test_a_reading_per_interval() -> None:
    machine = Machine()
    assert list(machine.run(90)) == [0, 30, 60, 90]
    assert machine.requests == [[0], [1], [2], [3]]
    assert machine.said == []


def test_a_late_clock_measures_once_and_goes_on() -> None:
    machine = Machine()
    assert machine.agent.step(1000) == 1030
    assert machine.agent.step(1031) == 1060  # a little late: the rhythm stays
    assert machine.agent.step(2000) == 2030  # the machine slept
    assert machine.requests == [[0], [1], [2]]


@pytest.mark.parametrize("fault", [Unreachable("refused"), Answer(503, "x", None), Answer(429, "x", None)])
def test_it_tries_again_with_capped_backoff(fault: Answer | Unreachable) -> None:
    machine = Machine()
    machine.ingest.answers = [fault] * 10
    times = [now for now in machine.run(600) if len(machine.requests) <= 10]
    retries = [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303]
    assert set(retries) <= set(times)
    assert CAP == 60
    assert [len(body) for body in machine.requests[:4]] == [1, 1, 1, 1]
    assert machine.requests[10] == list(range(11))  # 0 to 303 s: eleven measurements, the oldest first
    assert len(machine.said) == 2
    assert machine.said[1].startswith("ingest takes readings again; 0 were dropped")


def test_jitter_is_full() -> None:
    machine = Machine(chance=0.25)
    machine.ingest.answers = [Unreachable("x")] * 3
    assert list(machine.run(2)) == [0, 0.25, 0.75, 1.75]


def test_retry_after_is_kept_to() -> None:
    machine = Machine(chance=0.5)
    machine.ingest.answers = [Answer(503, "full", 20.0)]
    assert list(machine.run(25)) == [0, 20.5]
    machine.ingest.answers = [Answer(429, "slow", 10**9)]
    now = machine.agent.step(5000)
    for _ in range(10_000):
        if machine.requests[-1] != machine.requests[-2]:
            break
        now = machine.agent.step(now)
    assert now <= 5000 + LONGEST_WAIT + CAP + INTERVAL


def test_what_is_refused_is_dropped_and_told() -> None:
    machine = Machine()
    machine.ingest.answers = [Answer(400, "host: missing", None)]
    list(machine.run(30))
    assert machine.requests == [[0], [1]]
    assert machine.said == ["ingest answers 400: host: missing"]


def test_a_token_that_is_refused_may_be_mended() -> None:
    machine = Machine()
    machine.ingest.answers = [Answer(401, "no", None)]
    list(machine.run(1))
    assert machine.requests == [[0], [0]]


def test_the_oldest_are_dropped_and_counted() -> None:
    machine = Machine(keep=3)
    machine.ingest.answers = [Unreachable("x")] * 8
    list(machine.run(300))
    assert machine.agent.dropped > 0
    assert all(len(body) <= 3 for body in machine.requests)
    assert f"{machine.agent.dropped} were dropped" in machine.said[-1]
    assert not machine.agent.waiting


def test_many_go_in_several_requests() -> None:
    machine = Machine(keep=10 * MOST, each=MOST + 10)
    machine.agent.step(1000)
    assert [len(body) for body in machine.requests] == [MOST, 10]


def test_without_measuring_it_only_posts() -> None:
    machine = Machine()
    machine.ingest.answers = [Unreachable("x")]
    machine.agent.step(1000)
    machine.agent.step(1001, measure=False)
    assert machine.requests == [[0], [0]]


def test_this_machine() -> None:
    said: list[str] = []
    measure = measured("me", ["/", "/nowhere"], said.append)
    told = [measure() for _ in range(2)][-1]
    assert [reading["metric"] for reading in told] == ["disk", "memory", "load"]
    assert {reading["host"] for reading in told} == {"me"}
    assert told[0]["labels"] == {"path": "/"}
    assert all(0 <= reading["percent"] <= 100 for reading in told[:2])
    assert said == ["/nowhere: No such file or directory"]  # once

"""How long a lane waits after an error of Redis."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from redis import exceptions as errors

from common import keys
from common.settings import Settings
from dispatcher import trouble
from dispatcher.metrics import Metrics

GONE = errors.ResponseError("NOGROUP No such key or consumer group")
AWAY = errors.ConnectionError("Connection refused")


class Server:
    """Makes groups, or answers with `fault`."""

    def __init__(self) -> None:
        self.fault: errors.RedisError | None = None

    async def xgroup_create(self, *_: Any, **__: Any) -> None:
        if self.fault:
            raise self.fault


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each wait may last, filled by the lane."""
    monkeypatch.setattr(random, "random", lambda: 1.0)
    return []


@pytest.fixture
def lane(server: Server, waits: list[float]) -> trouble.Trouble:
    async def pause(seconds: float) -> None:
        waits.append(seconds)

    replica: Any = SimpleNamespace(redis=server, settings=Settings(), metrics=Metrics(), pause=pause)
    return trouble.Trouble(replica, "pager", keys.Destination("redispatch", "pager"))


async def test_a_server_that_is_away_is_asked_ever_less_often(
    lane: trouble.Trouble, waits: list[float]
) -> None:
    for _ in range(10):
        await lane.wait_out(AWAY)
    assert waits == sorted(waits)
    assert waits[-1] == trouble.LONGEST


async def test_one_that_is_back_empty_is_asked_soon(lane: trouble.Trouble, waits: list[float]) -> None:
    for _ in range(10):
        await lane.wait_out(AWAY)
    await lane.wait_out(GONE)
    assert waits[-1] == waits[0] < 1


async def test_a_group_that_can_not_be_made_is_waited_for(
    lane: trouble.Trouble, waits: list[float], server: Server
) -> None:
    server.fault = errors.ResponseError("OOM command not allowed")
    for _ in range(10):
        await lane.wait_out(GONE)
    assert waits[-1] == trouble.LONGEST

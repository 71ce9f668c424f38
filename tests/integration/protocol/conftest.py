from __future__ import annotations

from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from common.settings import Dedupe, Match, Route
from common.units import Duration
from tests.integration.protocol.sender import RULES, Sender
from tests.integration.protocol.stand import Stand
from tests.support.servers import Server
from tests.support.settings import build


@pytest.fixture
async def stand(server: Server, redis: Redis) -> Stand:
    """A destination on each kind of server."""
    made = Stand(redis, cluster=server.kind == "cluster")
    await made.begin()
    return made


@pytest.fixture
def senders(server: Server, redis: Redis) -> Callable[..., Sender]:
    """`senders(repeat_interval=3600)`: critical goes to the pager, everything to the chat."""

    def make(repeat_interval: float = 4 * 3600) -> Sender:
        routes = [Route(match=Match(severity="critical"), to=["pager"], continue_=True), Route(to=["chat"])]
        dedupe = Dedupe(repeat_interval=Duration(repeat_interval))
        settings = build(destinations=["pager", "chat"], routes=routes, rules=RULES, dedupe=dedupe)
        return Sender(redis, settings, cluster=server.kind == "cluster")

    return make


@pytest.fixture
def sender(senders: Callable[..., Sender]) -> Sender:
    """With the default settings."""
    return senders()

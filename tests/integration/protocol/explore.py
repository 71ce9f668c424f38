"""Runs the machine on a server: how many examples, of how many steps, from which seed."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from common import connect
from common.settings import Redis
from common.units import Duration
from tests.integration.protocol.machine import Machine
from tests.integration.protocol.world import World
from tests.support.servers import Server

EXAMPLES = int(os.environ.get("PROTOCOL_EXAMPLES", "100"))
STEPS = 30
FIXED = 20261129
SEED = int(os.environ.get("PROTOCOL_SEED", FIXED if "CI" in os.environ else random.randrange(1 << 32)))


def explore(
    server: Server,
    *,
    machine: type[Machine] = Machine,
    examples: int = EXAMPLES,
    start: int = SEED,
    shrink: bool = True,
) -> None:
    """Raises what the machine raised, with the steps that led to it."""
    loop = asyncio.new_event_loop()
    redis = connect.client(Redis(url=server.unix_url, timeout=Duration(10)))
    world = World(redis, cluster=server.kind == "cluster")
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    chosen = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=phases,
        print_blob=True,
        verbosity=Verbosity.normal if shrink else Verbosity.quiet,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    factory: Callable[[], Machine] = seed(start)(lambda: machine(world, loop))
    try:
        run_state_machine_as_test(factory, settings=chosen)  # type: ignore[arg-type]  # a function will do
    except Exception as fault:
        fault.add_note(f"again: PROTOCOL_SEED={start} PROTOCOL_EXAMPLES={examples}")
        raise
    finally:
        loop.run_until_complete(redis.aclose(close_connection_pool=True))
        loop.close()

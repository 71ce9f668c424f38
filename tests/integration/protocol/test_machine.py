from __future__ import annotations

import pytest

from tests.integration.protocol.explore import EXAMPLES, explore
from tests.integration.protocol.machine import GateMachine, Machine
from tests.support.servers import Server


@pytest.mark.long
@pytest.mark.parametrize("machine", [Machine, GateMachine])
@pytest.mark.timeout(300 + EXAMPLES)  # a failure is shortened, which takes longer than finding it
def test_protocol_keeps_its_promises(server: Server, machine: type[Machine]) -> None:
    """All examples on one kind; on the others enough to meet each script and each of its answers."""
    explore(server, machine=machine, examples=EXAMPLES if server.kind == "valkey" else max(1, EXAMPLES // 3))

from __future__ import annotations

from tests.integration.protocol.explore import explore
from tests.support.servers import Server


def test_protocol_keeps_its_promises(server: Server) -> None:
    explore(server)

"""What the tests of whole services share: a fleet of real processes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.fleet import Fleets
from tests.support.processes import Processes
from tests.support.receiver import Receiver


@pytest.fixture
async def fleets(processes: Processes, receiver: Receiver) -> AsyncIterator[Fleets]:
    """`await fleets(server, dispatcher={...})`: services on that server, delivering to `receiver`.

    Whatever is done to them, none may write a traceback.
    """
    async with Fleets(processes, receiver) as made:
        yield made
    processes.assert_no_traceback()

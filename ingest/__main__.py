"""`python -m ingest`: the service that takes alerts and readings over HTTP."""

from __future__ import annotations

import sys
from functools import partial

import common.early  # noqa: F401 - first: it does its work by being imported
from common import log, service
from common.listen import CannotListen
from common.reserve import Reserved
from common.shared import Table
from ingest.metrics import Metrics
from ingest.senders import too_open
from ingest.serve import PATHS, run
from ingest.supervise import Supervisor


def main(config_path: str | None = None) -> int:
    """Serve, in one process or in several, and return the exit code."""
    start = service.begin("ingest", config_path)
    if start is None:
        return 1
    fault = too_open(start.settings)
    if fault is not None:
        return service.complain("ingest", f"ingest.listen: {fault}")
    if start.settings.ingest.workers == 1:
        return start.live(run)
    try:
        with Reserved(start.settings.ingest.listen, setting="ingest.listen") as reserved:
            return _several(start, start.settings.ingest.workers, reserved.listen)
    except CannotListen as taken:
        return service.complain("ingest", str(taken))


def _several(start: service.Start, workers: int, listen: str) -> int:
    """The last row of numbers is the supervisor's own."""
    table = Table(workers + 1)

    def work(number: int, again: bool) -> int:
        log.setup(f"ingest/{number}")
        later = start.later() if again else start
        mine = start if too_open(later.settings) else later  # and the watch will tell why
        return mine.live(partial(run, row=table.row(number), listen=listen))

    return Supervisor(work, workers, Metrics(PATHS, table.row(workers))).run()


if __name__ == "__main__":
    sys.exit(main(service.told_config("ingest")))

"""`python -m ingest`: the service that takes alerts and readings over HTTP."""

from __future__ import annotations

import sys

from common import service
from ingest.serve import run


def main(config_path: str | None = None) -> int:
    """Serve, and return the exit code."""
    return service.main("ingest", config_path, run)


if __name__ == "__main__":
    sys.exit(main(service.told_config("ingest")))

"""`python -m ingest`: the service that takes alerts and readings over HTTP."""

from __future__ import annotations

import sys

import uvloop

from common import log
from common.config import ConfigError, load
from ingest.serve import complain, run


def main(config_path: str | None = None) -> int:
    """Load the configuration, serve, and return the exit code."""
    try:
        settings = load(config_path)
    except ConfigError as fault:
        return complain(f"the configuration can't be used\n{fault}")
    log.setup("ingest")
    return uvloop.run(run(settings))


if __name__ == "__main__":
    sys.exit(main())

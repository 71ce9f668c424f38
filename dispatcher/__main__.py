"""`python -m dispatcher`: the service that delivers."""

from __future__ import annotations

import sys

import common.early  # noqa: F401 - first: it does its work by being imported
from common import service
from dispatcher.destinations import kinds
from dispatcher.serve import run


def main(config_path: str | None = None) -> int:
    """Serve, and return the exit code."""
    return service.main("dispatcher", config_path, run, kinds)


if __name__ == "__main__":
    sys.exit(main(service.told_config("dispatcher")))

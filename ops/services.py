"""The commands that are somebody else's program: the two services, and the check of the configuration."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from ops import children, options


@click.command()
@options.config_option
def check(config: str | None) -> None:
    """Say everything that is wrong or doubtful with the configuration."""
    from ops.check import check as run

    sys.exit(run(config, sys.stdout))


@click.command()
@options.config_option
def ingest(config: str | None) -> None:
    """Run the service that takes alerts; the same as python -m ingest."""
    become("ingest", config)


@click.command()
@options.config_option
def dispatcher(config: str | None) -> None:
    """Run the service that delivers; the same as python -m dispatcher."""
    become("dispatcher", config)


def become(service: str, config: str | None) -> NoReturn:
    """Go on as that service in this very process."""
    environ = dict(os.environ) | ({"REDISPATCH_CONFIG": config} if config else {})
    os.execve(sys.executable, children.module(service), environ)  # noqa: S606 - no shell is wanted

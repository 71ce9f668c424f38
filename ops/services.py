"""The commands that are somebody else's program: the services, and the check of the configuration."""

from __future__ import annotations

import sys

import click

from common.units import Rate
from ops import options


class Alerts(click.ParamType):  # type: ignore[type-arg]  # generic in newer click only
    """`1000/s`, or 1000."""

    name = "rate"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Rate:
        """Alerts per second."""
        if isinstance(value, Rate):
            return value
        text = str(value)
        try:
            return Rate.parse(text if "/" in text else f"{text}/s")
        except ValueError as fault:
            self.fail(str(fault), param, ctx)


@click.command()
@options.config_option
@options.json_option
@click.option("--rate", type=Alerts(), metavar="R", help="Also what so many alerts need, such as 1000/s.")
def check(config: str | None, as_json: bool, rate: Rate | None) -> None:
    """Say all that is wrong with the configuration.

    Every fault at once, each with its place, and what may be meant but often is not. With --rate also how
    many processes and how much memory so many alerts per second need (docs/scaling.md). Exit code 0, also
    with warnings; 1 when there is a fault.
    """
    from ops.check import check as run
    from ops.reach import maxmemory

    sys.exit(run(config, sys.stdout, maxmemory, as_json, rate))


@click.command()
@options.config_option
def ingest(config: str | None) -> None:
    """Run what takes alerts: python -m ingest."""
    from ingest.__main__ import main

    sys.exit(main(config))


@click.command()
@options.config_option
def dispatcher(config: str | None) -> None:
    """Run what delivers: python -m dispatcher."""
    from dispatcher.__main__ import main

    sys.exit(main(config))


@click.command()
@options.config_option
def console(config: str | None) -> None:
    """Run the page for whoever is on call."""
    from common.service import main
    from dispatcher.destinations import kinds
    from ops.console.serve import run

    sys.exit(main("console", config, run, kinds))

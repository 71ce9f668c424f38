"""What the commands share: `--config`, the settings it leads to, and parameters with a unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from common.units import Address, Duration
from ops import completion

if TYPE_CHECKING:
    from common.settings import Settings

INTERRUPTED = 130  # the exit code that a shell gives SIGINT

F = TypeVar("F", bound=Callable[..., Any])


def config_option(command: F) -> F:
    """`--config FILE`, else `REDISPATCH_CONFIG`, else `./redispatch.yaml`; the parameter is `config`."""
    return click.option(
        "--config",
        envvar="REDISPATCH_CONFIG",
        metavar="FILE",
        shell_complete=completion.files,
        help="The configuration; REDISPATCH_CONFIG, or else ./redispatch.yaml.",
    )(command)


def config_of(ctx: click.Context) -> str | None:
    """What `--config` says; given to the group above it counts more than the environment does here."""
    own: str | None = ctx.params.get("config")
    above: str | None = ctx.parent.params.get("config") if ctx.parent is not None else None
    typed = ctx.get_parameter_source("config") is click.core.ParameterSource.COMMANDLINE
    return own if typed or not above else above


def destination_argument(command: F) -> F:
    """DEST; the parameter is `destination`."""
    return click.argument("destination", metavar="DEST", shell_complete=completion.destinations)(command)


def json_option(command: F) -> F:
    """`--json`; the parameter is `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="For programs; one document.")(command)


def print_json(document: Any) -> None:
    """One document, indented."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(document)))


def settings(config: str | None) -> Settings:
    """The settings of that file. Faults become the command's error, one per line."""
    from common.config import ConfigError, load
    from dispatcher.destinations import kinds

    try:
        return load(config, kinds=kinds)
    except ConfigError as faults:
        raise click.ClickException(str(faults)) from faults


class AddressType(click.ParamType):  # type: ignore[type-arg]  # generic in newer click only
    """`address:port`."""

    name = "address:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        """What the text says, or the command's error."""
        try:
            return value if isinstance(value, Address) else Address.parse(value)
        except ValueError as fault:
            self.fail(f"{value!r}: {fault}", param, ctx)


class DurationType(click.ParamType):  # type: ignore[type-arg]  # as above
    """`250ms`, `1s`, `5m`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Duration:
        """What the text says, or the command's error."""
        try:
            return value if isinstance(value, Duration) else Duration.parse(value)
        except ValueError as fault:
            self.fail(f"{value!r}: {fault}", param, ctx)


def reason(fault: OSError) -> str:
    """What the system refuses, without the numbers and addresses that asyncio puts around it."""
    return (fault.strerror or str(fault) or type(fault).__name__).rpartition(": ")[2].lower()

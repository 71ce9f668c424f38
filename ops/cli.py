"""`redispatch`: a table of commands, each in a module of its own that is imported when it is called.

A user's mistake is one clear line on stderr and an exit code that is not 0, never a traceback.
"""

from __future__ import annotations

from importlib import import_module

import click

from common import __version__
from ops import options

# Command: module and name of its click command, in the order of the help.
COMMANDS = {
    "up": "ops.up:up",
    "receive": "ops.receive:receive",
    "send": "ops.send:send",
    "agent": "ops.agent:agent",
    "check": "ops.services:check",
    "explain": "ops.explain:explain",
    "status": "ops.status:status",
    "dead": "ops.dead:dead",
    "pause": "ops.gate:pause",
    "resume": "ops.gate:resume",
    "retire": "ops.retire:retire",
    "ledger": "ops.ledger:ledger",
    "ingest": "ops.services:ingest",
    "dispatcher": "ops.services:dispatcher",
    "console": "ops.services:console",
    "completion": "ops.completion:completion",
}


class Commands(click.Group):
    """A group whose commands come from the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run it; what the system refuses (a taken port, a file, a connection) is the command's error."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(options.INTERRUPTED)
        except BrokenPipeError:
            raise  # whoever read this has seen enough; click ends it quietly
        except OSError as fault:
            raise click.ClickException(_sentence(fault)) from fault


def _sentence(fault: OSError) -> str:
    where = f"{fault.filename}: " if fault.filename else ""
    return where + options.reason(fault)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="redispatch")
def main() -> None:
    """Alerts over HTTP to every destination: at least once, deduplicated."""

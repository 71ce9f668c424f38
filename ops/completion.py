"""`redispatch completion`: what makes a shell complete commands, options, destinations and reasons.

The shell then asks this program for each word; what it is told comes from the options and, for
destinations, from the configuration. A file that is broken or not there completes nothing, without a word.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

SHELLS = ("bash", "zsh", "fish")
PROGRAM, VARIABLE = "redispatch", "_REDISPATCH_COMPLETE"  # as click names it


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what makes a shell complete the words of this command.

    \b
    bash:  eval "$(redispatch completion bash)"              in ~/.bashrc
    zsh:   eval "$(redispatch completion zsh)"               in ~/.zshrc, below compinit
    fish:  redispatch completion fish > ~/.config/fish/completions/redispatch.fish

    Destinations are those of the configuration: --config, REDISPATCH_CONFIG or ./redispatch.yaml.
    """
    from ops.cli import main

    made = get_completion_class(shell)
    if made is None:
        raise click.ClickException(f"this click knows no completion for {shell}")
    click.echo(made(main, {}, PROGRAM, VARIABLE).source())


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Whatever files there are."""
    return [CompletionItem(incomplete, type="file")]


def destinations(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names in the configuration. Secrets in it need not be known for that."""
    from ops.options import config_of

    path = config_of(ctx) or os.environ.get("REDISPATCH_CONFIG") or "redispatch.yaml"
    return [CompletionItem(name) for name in _names(path) if name.startswith(incomplete)]


def _names(path: str) -> list[str]:
    import yaml

    try:
        document: Any = yaml.safe_load(Path(path).read_bytes())
    except (OSError, ValueError, yaml.YAMLError):
        return []  # `redispatch check` says what is wrong with it
    listed = document.get("destinations") if isinstance(document, dict) else None
    named = [one.get("name") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return [name for name in named if isinstance(name, str)]

"""Asks before something is done that can't be undone."""

from __future__ import annotations

import sys

import click


def sure(question: str, yes: bool) -> None:
    """Return when the answer is yes. Raises Abort for a no, and refuses when nobody is there to ask."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.ClickException(f"{question} Nobody can answer here (no terminal): say --yes")
    click.confirm(question, abort=True, err=True)

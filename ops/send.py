"""`redispatch send`: posts one test alert to the configured ingest and prints its answer."""

from __future__ import annotations

import json
import socket
import sys

import click

from ops import options
from ops.post import Target, Unreachable, target_options


@click.command()
@click.option("--host", default=socket.gethostname, help="What is concerned; this machine's name by default.")
@click.option("--name", default="test", show_default=True, help="What is wrong with it.")
@click.option("--severity", help="info, warning, error or critical.")
@click.option("--status", type=click.Choice(["firing", "resolved"]), help="firing unless given.")
@click.option("--summary", help="A sentence for people.")
@options.json_option
@target_options
def send(
    config: str | None,
    url: str | None,
    token: str | None,
    ca: str | None,
    cert: str | None,
    as_json: bool,
    **alert: str | None,
) -> None:
    """Post one test alert to ingest.

    The same host, name and severity again within dedupe.window (a minute) is a duplicate and is not sent: try
    another --host. Exit code 0 when ingest has it (200, 201), else 1.
    """
    target = Target(config, url, token, ca, cert)
    body = json.dumps({name: value for name, value in alert.items() if value is not None}).encode()
    try:
        answer = target.post("/v1/alerts", body)
    except Unreachable as fault:
        raise click.ClickException(f"{target.url} can't be reached ({fault}); is ingest running?") from fault
    if as_json:
        click.echo(json.dumps({"status": answer.status, "answer": _parsed(answer.text)}, indent=2))
        sys.exit(0 if answer.status < 300 else 1)
    if answer.status >= 300:
        raise click.ClickException(f"{target.url}/v1/alerts answers {answer.status}: {answer.text}")
    click.echo(f"{answer.status} {answer.text}")


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a proxy in between may say anything

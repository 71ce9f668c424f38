"""`redispatch send`: posts one test alert to the configured ingest and prints its answer."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import click

from common.units import Address
from ops import options

TIMEOUT = 10.0  # seconds


@click.command()
@options.config_option
@click.option("--host", default=socket.gethostname, help="What is concerned; this machine's name by default.")
@click.option("--name", default="test", show_default=True, help="What is wrong with it.")
@click.option("--severity", help="info, warning, error or critical.")
@click.option("--status", type=click.Choice(["firing", "resolved"]), help="firing unless given.")
@click.option("--summary", help="A sentence for people.")
@click.option("--url", metavar="URL", help="Where ingest is; ingest.listen of the configuration by default.")
@click.option("--token", envvar="REDISPATCH_TOKEN", help="Bearer token, when ingest wants one.")
def send(config: str | None, url: str | None, token: str | None, **alert: str | None) -> None:
    """Post one test alert to ingest.

    The same host, name and severity again within dedupe.window (a minute) is a duplicate and is not sent: try
    another --host.
    """
    base = url or base_url(options.settings(config).ingest.listen)
    if urlsplit(base).scheme not in ("http", "https"):
        raise click.BadParameter(f"{base!r} is no http:// or https:// address", param_hint="--url")
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    body = json.dumps({name: value for name, value in alert.items() if value is not None}).encode()
    target = base.rstrip("/") + "/v1/alerts"
    request = urllib.request.Request(target, body, headers)  # noqa: S310 - the scheme was looked at above
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310 - as above
            click.echo(f"{answer.status} {answer.read().decode()}")
    except urllib.error.HTTPError as refusal:
        with refusal:
            said = refusal.read().decode(errors="replace")
        raise click.ClickException(f"{target} answers {refusal.code}: {said}") from refusal
    except (urllib.error.URLError, TimeoutError) as fault:
        why = getattr(fault, "reason", fault)
        reason = options.reason(why) if isinstance(why, OSError) else why
        raise click.ClickException(f"{target} can't be reached ({reason}); is ingest running?") from fault


def base_url(listen: str) -> str:
    """Where a service that listens on `listen` is reached from this machine."""
    host, port = Address.parse(listen)
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - recognised
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

"""`redispatch send`: posts one test alert to the configured ingest and prints its answer."""

from __future__ import annotations

import json
import socket
import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from common.units import Address
from ops import options

if TYPE_CHECKING:
    from common.settings import Settings

TIMEOUT = 10.0  # seconds
_FILE = click.Path(exists=True, dir_okay=False)


@click.command()
@options.config_option
@click.option("--host", default=socket.gethostname, help="What is concerned; this machine's name by default.")
@click.option("--name", default="test", show_default=True, help="What is wrong with it.")
@click.option("--severity", help="info, warning, error or critical.")
@click.option("--status", type=click.Choice(["firing", "resolved"]), help="firing unless given.")
@click.option("--summary", help="A sentence for people.")
@click.option("--url", metavar="URL", help="Where ingest is; ingest.listen of the configuration by default.")
@click.option("--token", envvar="REDISPATCH_TOKEN", help="Bearer token, when ingest wants one.")
@click.option("--ca", type=_FILE, help="Who vouches for ingest's certificate; the system's authorities else.")
@click.option("--cert", type=_FILE, help="Our certificate and its key, when ingest wants one.")
def send(
    config: str | None,
    url: str | None,
    token: str | None,
    ca: str | None,
    cert: str | None,
    **alert: str | None,
) -> None:
    """Post one test alert to ingest.

    The same host, name and severity again within dedupe.window (a minute) is a duplicate and is not sent: try
    another --host.
    """
    base = url or ingest_url(options.settings(config))
    if urlsplit(base).scheme not in ("http", "https"):
        raise click.BadParameter(f"{base!r} is no http:// or https:// address", param_hint="--url")
    if token and not (token.isascii() and token.isprintable()):
        raise click.BadParameter("has to be printable ASCII characters", param_hint="--token")
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    body = json.dumps({name: value for name, value in alert.items() if value is not None}).encode()
    target = base.rstrip("/") + "/v1/alerts"
    request = urllib.request.Request(target, body, headers)  # noqa: S310 - the scheme was looked at above
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT, context=_tls(ca, cert)) as answer:  # noqa: S310 - as above
            click.echo(f"{answer.status} {answer.read().decode()}")
    except urllib.error.HTTPError as refusal:
        with refusal:
            said = refusal.read().decode(errors="replace")
        raise click.ClickException(f"{target} answers {refusal.code}: {said}") from refusal
    except (urllib.error.URLError, TimeoutError) as fault:
        why = getattr(fault, "reason", fault)
        reason = options.reason(why) if isinstance(why, OSError) else why
        raise click.ClickException(f"{target} can't be reached ({reason}); is ingest running?") from fault


def _tls(ca: str | None, cert: str | None) -> ssl.SSLContext:
    file = ca
    try:
        made = ssl.create_default_context(cafile=ca)
        if cert is not None:
            file = cert
            made.load_cert_chain(cert, password="")  # so that nobody is asked for one
    except OSError as fault:  # ssl's errors are such
        raise click.ClickException(f"{file} can't be used: no certificate in PEM, or no key") from fault
    return made


def ingest_url(settings: Settings) -> str:
    """Where ingest is reached from this machine."""
    url = base_url(settings.ingest.listen)
    return url.replace("http:", "https:", 1) if settings.ingest.tls.cert is not None else url


def base_url(listen: str) -> str:
    """Where a service that listens on `listen` is reached from this machine."""
    host, port = Address.parse(listen)
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - recognised
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

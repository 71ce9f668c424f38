"""Posting to ingest from a command: where it is, whose token, which certificates; one request at a time.

Takes a path and a body; returns an Answer. Raises Unreachable, and click's exceptions for wrong options.
"""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import click

from common.units import Address
from ops import options

if TYPE_CHECKING:
    from common.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
TIMEOUT = 10.0  # seconds
_FILE = click.Path(exists=True, dir_okay=False)


class Unreachable(Exception):
    """There was no answer; the text is the reason."""


class Answer(NamedTuple):
    """What ingest said; `retry_after` in seconds."""

    status: int
    text: str
    retry_after: float | None


def target_options(command: F) -> F:
    """`--config` and all that makes a Target; the parameters are `config`, `url`, `token`, `ca`, `cert`."""
    for option in (
        click.option("--cert", type=_FILE, help="Our certificate and its key, when ingest wants one."),
        click.option(
            "--ca", type=_FILE, help="Who vouches for ingest's certificate; the system's authorities else."
        ),
        click.option("--token", envvar="REDISPATCH_TOKEN", help="Bearer token, when ingest wants one."),
        click.option(
            "--url", metavar="URL", help="Where ingest is; ingest.listen of the configuration by default."
        ),
        options.config_option,
    ):
        command = option(command)
    return command


class Target:
    """Ingest, as the options say."""

    def __init__(
        self, config: str | None, url: str | None, token: str | None, ca: str | None, cert: str | None
    ) -> None:
        self.url = (url or ingest_url(options.settings(config))).rstrip("/")
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise click.BadParameter(f"{self.url!r} is no http:// or https:// address", param_hint="--url")
        if token and not (token.isascii() and token.isprintable()):
            raise click.BadParameter("has to be printable ASCII characters", param_hint="--token")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._tls = _tls(ca, cert)

    def post(self, path: str, body: bytes, content_type: str = "application/json") -> Answer:
        """One request. Raises Unreachable."""
        headers = {"Content-Type": content_type, **self._headers}
        request = urllib.request.Request(self.url + path, body, headers)  # noqa: S310 - looked at above
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT, context=self._tls) as answer:  # noqa: S310 - the same
                return Answer(answer.status, answer.read().decode(errors="replace"), None)
        except urllib.error.HTTPError as refusal:
            with refusal:
                wait = _seconds(refusal.headers.get_all("Retry-After", []))
                return Answer(refusal.code, refusal.read().decode(errors="replace"), wait)
        except OSError as fault:  # URLError is one, a timeout and a connection that broke off are, too
            raise Unreachable(_reason(fault)) from fault
        except HTTPException as fault:
            raise Unreachable(f"the answer is no HTTP: {type(fault).__name__}") from fault


def _reason(fault: OSError) -> str:
    why = getattr(fault, "reason", fault)
    return options.reason(why) if isinstance(why, OSError) else str(why)


def _seconds(values: list[str]) -> float | None:
    from dispatcher.destinations.answer import retry_after

    return retry_after(values, time.time())


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
    return f"http://{Address.parse(listen).here}"

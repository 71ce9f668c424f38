"""The image's HEALTHCHECK: exit code 0 when `/healthz` of this container's service answers 200.

Which service it is, process 1 tells by its words, and where that listens, the variable that sets it: the
image sets them all. A command without probes is not asked. `python -m ops.healthcheck HOST:PORT` asks there.
"""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

from common.units import Address

SERVICES = ("ingest", "dispatcher", "console")
TIMEOUT = 4.0  # seconds, below the one of HEALTHCHECK
WORDS = Path("/proc/1/cmdline")


def place(words: Sequence[str], environ: Mapping[str, str]) -> Address | None:
    """Where what was started with these words listens; None for other commands. Raises ValueError."""
    service = next((word for word in words if word in SERVICES), None)
    if service is None:
        return None
    return Address.parse(environ.get(f"REDISPATCH_{service.upper()}_LISTEN", ""))


def fault(address: Address) -> str | None:
    """What is wrong with the service there; None when it is well."""
    host, port = address.here
    try:
        return _asked(HTTPConnection(host, port, timeout=TIMEOUT))
    except (OSError, HTTPException) as failed:
        plain = str(failed) or type(failed).__name__
        if isinstance(failed, ConnectionRefusedError | TimeoutError):
            return plain
    unverified = ssl._create_unverified_context()  # noqa: S323 - it is this container, whatever its name
    tls = HTTPSConnection(host, port, timeout=TIMEOUT, context=unverified)
    try:
        tls.connect()
    except OSError:
        return plain
    try:
        return _asked(tls)
    except TimeoutError as late:
        return str(late)
    except (OSError, HTTPException):
        return None  # its event loop shook hands, and then it wanted a certificate, which we have not


def _asked(connection: HTTPConnection) -> str | None:
    try:
        connection.request("GET", "/healthz")
        with connection.getresponse() as answer:
            return None if answer.status == 200 else f"answers {answer.status}"
    finally:
        connection.close()


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    try:
        words = WORDS.read_text("utf-8", "replace").split("\0")
        address = Address.parse(arguments[0]) if arguments else place(words, os.environ)
        wrong = None if address is None else fault(address)
    except ValueError as unclear:
        wrong = f"where the service listens is unknown: {unclear}"
    if wrong is not None:
        sys.stdout.write(f"{wrong}\n")
    return 0 if wrong is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""TLS of a destination: takes certificates and a key as PEM texts, returns what aiohttp connects with.

Raises TlsFault, which names the setting and shows nothing of the key.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from common.units import Secret

_MEMORY = Path("/dev/shm")  # noqa: S108 - a file with a random name that only we can read


class Tls(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Certificates, PEM; `file:/path` for each, as for secrets."""

    ca: Annotated[Secret | None, Meta(description="trusted instead of the system's authorities")] = None
    cert: Annotated[Secret | None, Meta(description="the client's certificate, with its chain")] = None
    key: Annotated[Secret | None, Meta(description="its key, without a password")] = None


class TlsFault(ValueError):
    """`setting` is the one below `tls` that can't be used; the text says why."""

    def __init__(self, setting: str, why: str) -> None:
        super().__init__(why)
        self.setting = setting


def context(tls: Tls) -> ssl.SSLContext:
    """Checks the receiver's certificate and name, always. Raises TlsFault."""
    made = ssl.create_default_context() if tls.ca is None else _trusting(tls.ca.reveal())
    if tls.key is not None and tls.cert is None:
        raise TlsFault("cert", "is missing; there is a key")
    if tls.cert is not None:
        if tls.key is None:
            raise TlsFault("key", "is missing; there is a certificate")
        _identify(made, tls.cert.reveal(), tls.key.reveal())
    return made


def _trusting(authorities: str) -> ssl.SSLContext:
    try:
        if authorities:  # without them it would trust the system's
            return ssl.create_default_context(cadata=authorities)
    except (ssl.SSLError, ValueError):
        pass
    raise TlsFault("ca", "holds no certificate in PEM that can be read")


def _identify(made: ssl.SSLContext, cert: str, key: str) -> None:
    """Python's ssl reads these from files only; in memory where the system has a place for that."""
    with tempfile.NamedTemporaryFile(
        "w", suffix=".pem", dir=_MEMORY if _MEMORY.is_dir() else None, encoding="utf-8"
    ) as both:
        both.write(f"{cert}\n{key}\n")
        both.flush()
        try:
            made.load_cert_chain(both.name, password="")
        except ssl.SSLError as fault:
            raise TlsFault(*_what_is_wrong(fault)) from None


def _what_is_wrong(fault: ssl.SSLError) -> tuple[str, str]:
    if fault.reason == "KEY_VALUES_MISMATCH":
        return "key", "belongs to another certificate"
    return "cert", f"can't be used with this key: {fault.reason or 'no PEM that can be read'}"

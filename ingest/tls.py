"""TLS of ingest: takes the paths of certificates and a key, returns what the server speaks with.

Files that were replaced, as whoever renews certificates does, are taken within seconds; connections that are
there stay as they are. Raises TlsFault, which names the setting and shows nothing of the key.
"""

from __future__ import annotations

import asyncio
import ssl
from hashlib import blake2b
from pathlib import Path

from common.log import Log
from common.settings import ServerTls

EVERY = 2.0  # seconds between two looks

log = Log("tls")


class TlsFault(ValueError):
    """`setting` is the one below `ingest.tls` that can't be used; the text says why."""

    def __init__(self, setting: str, why: str) -> None:
        super().__init__(f"ingest.tls.{setting}: {why}")
        self.setting = setting
        self.why = why


def context(tls: ServerTls) -> ssl.SSLContext | None:
    """TLS 1.2 or newer, with a client's certificate where there is `client_ca`; None: no TLS at all.

    Raises TlsFault.
    """
    if tls == ServerTls():
        return None
    for name in ("cert", "key", "client_ca"):
        if getattr(tls, name) is not None:
            _readable(name, getattr(tls, name))
    if tls.cert is None or tls.key is None:
        raise TlsFault("cert" if tls.cert is None else "key", "is missing; there is another of ingest.tls")
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_RENEGOTIATION
    made.set_alpn_protocols(["http/1.1"])
    _identify(made, tls.cert, tls.key)
    if tls.client_ca is not None:
        _ask(made, tls.client_ca)
    return made


def _readable(setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as fault:
        raise TlsFault(setting, f"{path} can't be read: {(fault.strerror or 'no file').lower()}") from None
    except ValueError:
        raise TlsFault(setting, "is no path") from None


def _identify(made: ssl.SSLContext, cert: str, key: str) -> None:
    try:
        made.load_cert_chain(cert, key, password="")  # so that nobody is asked for one
    except (ssl.SSLError, OSError) as fault:
        reason = getattr(fault, "reason", None)
        if reason == "KEY_VALUES_MISMATCH":
            raise TlsFault("key", f"{key} belongs to another certificate than {cert}") from None
        why = "no certificate and key in PEM, without a password"
        raise TlsFault("cert", f"{cert} and {key}: {why} ({reason or 'unreadable'})") from None


def _ask(made: ssl.SSLContext, client_ca: str) -> None:
    made.verify_mode = ssl.CERT_REQUIRED
    made.options |= ssl.OP_NO_TICKET  # a session taken up again would not ask who vouches for it now
    made.num_tickets = 0
    try:
        made.load_verify_locations(client_ca)
    except (ssl.SSLError, OSError):
        raise TlsFault("client_ca", f"{client_ca}: no certificate in PEM that can be read") from None


class Certificates:
    """Those of a running server; `context` is what it speaks with, None without TLS. Raises TlsFault."""

    def __init__(self, tls: ServerTls) -> None:
        self._tls = tls
        self._digest = _digest(tls)
        self.context = self._current = context(tls)
        if self.context is not None:
            self.context.sni_callback = self._choose  # called for each connection, with a name or without

    async def follow(self) -> None:
        """Until cancelled: look every now and then."""
        while self.context is not None:
            await asyncio.sleep(EVERY)
            await self.look()

    async def look(self) -> None:
        """Whether somebody replaced the files; what can't be used is told once, and the old ones stay."""
        digest = await asyncio.to_thread(_digest, self._tls)
        if digest == self._digest:
            return
        self._digest = digest
        try:
            self._current = await asyncio.to_thread(context, self._tls)
            log.info("certificates_taken", cert=self._tls.cert)
        except TlsFault as fault:
            log.error("certificates_refused", faults=str(fault))

    def _choose(self, connection: ssl.SSLObject, name: str | None, before: ssl.SSLContext) -> None:
        if self._current is not None:
            connection.context = self._current


def _digest(tls: ServerTls) -> bytes:
    """Of the contents; a file that can't be read differs from each that can."""
    whole = blake2b()
    for path in (tls.cert, tls.key, tls.client_ca):
        try:
            content = b"+" + Path(path).read_bytes() if path is not None else b""
        except (OSError, ValueError):
            content = b"-"
        whole.update(blake2b(content).digest())
    return whole.digest()

"""Certificates for tests, made with the openssl command: an authority, and what it signs for 127.0.0.1.

Without openssl a test is skipped here, and fails when `CI` is in the environment.
"""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from msgspec import Struct


class Files(Struct, frozen=True):
    """Names in `directory` of an authority's certificate, and of one that it issued with its key."""

    directory: Path
    own: str = "server"
    authority: str = "authority"

    @property
    def paths(self) -> tuple[str, str, str]:
        """Of the authority's certificate, of one's own, and of its key."""
        names = f"{self.authority}.crt", f"{self.own}.crt", f"{self.own}.key"
        authority, own, key = (str(self.directory / name) for name in names)
        return authority, own, key

    @property
    def configuration(self) -> dict[str, str]:
        """Of a server that has them, and wants its clients to show one of the same authority."""
        authority, own, key = self.paths
        both = {"tls-cluster": "yes", "tls-replication": "yes"}
        return {"tls-ca-cert-file": authority, "tls-cert-file": own, "tls-key-file": key, **both}

    @property
    def options(self) -> dict[str, str]:
        """Of a client's connection, and of an address."""
        return dict(zip(("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"), self.paths, strict=True))

    @property
    def query(self) -> str:
        """What the address of such a server ends with."""
        return "?" + "&".join(f"{name}={path}" for name, path in self.options.items())


class Authority:
    """Keeps its files in `directory`."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._name = name
        request = ["-subj", f"/CN={name}", "-days", "2", "-addext", "basicConstraints=critical,CA:true"]
        self._openssl("req", "-x509", *request, *self._new(name))

    @property
    def certificate(self) -> str:
        """Its own certificate, PEM."""
        return self._pem(self._name)

    def issue(self, name: str, days: int = 2) -> tuple[str, str]:
        """A certificate with its key, PEM, for a server on 127.0.0.1 and for a client; 0 days: expired."""
        extensions = self._directory / "extensions"
        extensions.write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
        self._openssl("req", "-subj", f"/CN={name}", *self._new(name))
        signed = [
            "-CA",
            f"{self._name}.crt",
            "-CAkey",
            f"{self._name}.key",
            "-CAcreateserial",
            "-days",
            str(days),
        ]
        self._openssl(
            "x509", "-req", "-in", f"{name}.crt", *signed, "-extfile", str(extensions), "-out", f"{name}.pem"
        )
        (self._directory / f"{name}.pem").rename(self._directory / f"{name}.crt")
        return self._pem(name), (self._directory / f"{name}.key").read_text()

    def server(self, *, asks_for_client: bool = False) -> ssl.SSLContext:
        """For a server that this authority vouches for; it may want a client's certificate from it, too."""
        self.issue("server")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._directory / "server.crt", self._directory / "server.key")
        if asks_for_client:
            context.load_verify_locations(cadata=self.certificate)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _pem(self, name: str) -> str:
        return (self._directory / f"{name}.crt").read_text()

    def _new(self, name: str) -> list[str]:
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        return [*curve, "-keyout", f"{name}.key", "-out", f"{name}.crt"]

    def _openssl(self, *words: str) -> None:
        if shutil.which("openssl") is None:
            if "CI" in os.environ:
                pytest.fail("no openssl on this machine", pytrace=False)
            pytest.skip("no openssl on this machine")
        subprocess.run(["openssl", *words], cwd=self._directory, check=True, capture_output=True)

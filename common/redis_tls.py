"""What TLS to Redis goes by: one context for all connections, made anew when one of its files was replaced.

Takes what redis-py read out of the address. Where it names authorities the system's are not trusted besides;
those take 40 ms to read, which redis-py does for each connection. Raises OSError, `ssl.SSLError` among them.
"""

from __future__ import annotations

import ssl
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from redis.asyncio.connection import RedisSSLContext

Files: TypeAlias = tuple[str | None, str | None, str | None, str | None]
Checks: TypeAlias = tuple[ssl.VerifyMode, bool, int | None, str | None]
Stamp: TypeAlias = tuple[int, int, int]


def context(told: RedisSSLContext) -> ssl.SSLContext:
    """For a connection that is about to be made."""
    files = told.ca_certs, told.ca_path, told.certfile, told.keyfile
    checks = told.cert_reqs, told.check_hostname, told.min_version, told.ciphers
    return _made(files, told.password, checks, tuple(map(_stamp, files)))


@lru_cache(maxsize=2)
def _made(files: Files, password: str | None, checks: Checks, _: tuple[Stamp | None, ...]) -> ssl.SSLContext:
    authorities, directory, certificate, key = files
    verify, names, version, ciphers = checks
    made = ssl.create_default_context(cafile=authorities, capath=directory)
    made.check_hostname = names
    made.verify_mode = verify
    if certificate is not None:
        made.load_cert_chain(certificate, key, password)
    if version is not None:
        made.minimum_version = ssl.TLSVersion(version)
    if ciphers is not None:
        made.set_ciphers(ciphers)
    return made


def _stamp(path: str | None) -> Stamp | None:
    """Tells one file from another that took its place."""
    if path is None:
        return None
    found = Path(path).stat()
    return found.st_ino, found.st_mtime_ns, found.st_size

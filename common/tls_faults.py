"""What is wrong with TLS to Redis, as a sentence for whoever wrote `redis.url`.

Takes the error of a connection that could not be made and the address; returns "" where TLS has no part in
it. Looks at the files that the address names. Raises nothing.
"""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

FILES = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
_ANOTHER = (62, 64)  # OpenSSL's codes of a certificate for another name, and for another address
_EXPIRED = 10


def why(fault: BaseException, url: str) -> str:
    """How it goes on behind the address; ends with a full stop or a question mark."""
    parts = urlsplit(url)
    if not parts.scheme.startswith("rediss"):
        tls = parts.scheme.replace("redis", "rediss")
        wants = f", or does it want TLS ({tls}://)" if tls != parts.scheme else ""
        return f"can't be reached (it hung up): is it running{wants}?" if _hung_up(fault) else ""
    options = dict(parse_qsl(parts.query))
    missing = [
        f"{name} ({options[name]})" for name in FILES if name in options and not _readable(options[name])
    ]
    if missing:
        return f"can't be asked: {', '.join(missing)} can't be read."
    for cause in _causes(fault):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"shows a certificate that is refused: {_refused(cause)}."
        if isinstance(cause, ssl.SSLError):
            return _of_ssl(cause)
    if not _hung_up(fault):
        return ""
    if "ssl_certfile" in options:
        return "hung up: does it trust the certificate in ssl_certfile, and is that still valid?"
    return "hung up: does it want a client's certificate (ssl_certfile, ssl_keyfile)?"


def _refused(fault: ssl.SSLCertVerificationError) -> str:
    said = fault.verify_message.rstrip(".")
    if fault.verify_code in _ANOTHER:
        return f"{said}. The name or address that it is asked by has to be in it"
    return said if fault.verify_code == _EXPIRED else f"{said}. See ssl_ca_certs"


def _of_ssl(fault: ssl.SSLError) -> str:
    if not hasattr(fault, "reason"):  # not OpenSSL's, but of Python's own module
        return f"can't be asked: {fault.args[0].rstrip('.').lower()}: see ssl_ciphers."
    match fault.reason or "":
        case "TLSV13_ALERT_CERTIFICATE_REQUIRED":
            return "wants a client's certificate: ssl_certfile and ssl_keyfile."
        case "KEY_VALUES_MISMATCH":
            return "can't be asked: the key in ssl_keyfile is not that of the certificate in ssl_certfile."
        case "NO_CERTIFICATE_OR_CRL_FOUND" | "NO_START_LINE" | "PEM_LIB" | "":
            return "can't be asked: ssl_ca_certs, ssl_certfile and ssl_keyfile have to be files in PEM."
        case "WRONG_VERSION_NUMBER" | "RECORD_LAYER_FAILURE":
            return "does not speak TLS there: is it another port, or redis:// without it?"
        case reason if "ALERT" in reason:
            told = reason.partition("ALERT_")[2].replace("_", " ").lower()
            return f"does not accept the certificate in ssl_certfile: {told}."
        case reason:
            return f"refuses TLS ({reason.replace('_', ' ').lower()})."


def _hung_up(fault: BaseException) -> bool:
    """After the connection was made: not what a port that nobody listens on does."""
    told = [str(cause) for cause in _causes(fault)]
    return any(
        isinstance(cause, ConnectionResetError) or getattr(cause, "errno", None) == errno.ECONNRESET
        for cause in _causes(fault)
    ) or any("Connection lost" in text or "Connection closed by server" in text for text in told)


def _causes(fault: BaseException) -> Iterator[BaseException]:
    """The error, and those that it came of."""
    cause: BaseException | None = fault
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _readable(path: str) -> bool:
    return os.access(path, os.R_OK)

"""What it means when no answer came: takes what the HTTP client raised, returns an Outcome.

Pure. The client's own texts may hold the whole URL, and with it a secret: none of them is used.
"""

from __future__ import annotations

import aiohttp

from common.outcomes import Outcome, OutcomeKind
from dispatcher import guard
from dispatcher.destinations.answer import short


def unanswered(fault: TimeoutError | aiohttp.ClientError, where: str) -> Outcome:
    """The outcome of an attempt; `where` is host and port."""
    match fault:
        case TimeoutError():
            step = "connecting to" if isinstance(fault, aiohttp.ConnectionTimeoutError) else "waiting for"
            return Outcome(OutcomeKind.TIMEOUT, error=f"timeout {step} {where}")
        case aiohttp.ClientConnectorCertificateError():
            return _connection(f"TLS with {where} failed: {fault.certificate_error}")
        case aiohttp.ClientConnectorSSLError():
            return _connection(f"TLS with {where} failed: {_cause(fault.os_error)}")
        case aiohttp.ClientConnectorError(os_error=guard.Refused() as refused):
            return Outcome(OutcomeKind.REFUSED, error=f"{where}: {refused}")
        case aiohttp.ClientProxyConnectionError():
            return _connection(f"cannot connect to the proxy for {where}: {_cause(fault.os_error)}")
        case aiohttp.ClientConnectorError():
            return _connection(f"cannot connect to {where}: {_cause(fault.os_error)}")
        case aiohttp.ClientHttpProxyError():
            return _connection(f"the proxy for {where} refused with HTTP {fault.status}")
        case aiohttp.InvalidURL():
            return Outcome(OutcomeKind.REFUSED, error=f"{where}: not a plain address")
        case aiohttp.ClientResponseError():
            return Outcome(OutcomeKind.FAILED, error=f"the answer of {where} is not HTTP that can be read")
        case _:
            return _connection(f"connection to {where} lost: {type(fault).__name__}")


def dropped(fault: aiohttp.ClientConnectionError) -> bool:
    """Whether the connection went before any byte of the answer.

    A reset tells nothing about bytes before it; on a used connection it is nearly always the receiver's idle
    timeout.
    """
    if isinstance(fault, aiohttp.ServerDisconnectedError):
        return isinstance(fault.message, str)  # else it is the part of the answer that had come
    return isinstance(fault, aiohttp.ClientOSError | aiohttp.ClientConnectionResetError) and not isinstance(
        fault, aiohttp.ClientConnectorError
    )


def _connection(error: str) -> Outcome:
    return Outcome(OutcomeKind.CONNECTION, error=error)


def _cause(fault: OSError) -> str:
    return short(fault.strerror or str(fault))

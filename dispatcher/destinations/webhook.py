"""Posts a delivery as a Standard Webhook and says what came of it.

One attempt: render and sign, post on a pooled connection, read a little of the answer, classify. Each
destination has a session of its own, made in the running loop with the first delivery, behind the guard.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable
from contextvars import ContextVar

import aiohttp
from aiohttp import AddrInfoType, ClientTimeout, StreamReader

from common.outcomes import Outcome, OutcomeKind
from common.settings import Destination
from dispatcher import guard
from dispatcher.destinations import answer
from dispatcher.destinations.base import Delivery, Unusable
from dispatcher.destinations.payload import RENDER_FAULTS, body
from dispatcher.destinations.request import Target, target
from dispatcher.destinations.signing import signature

CONNECT_TIMEOUT = 3.0  # seconds, or the destination's timeout when that is shorter
DNS_TTL = 30  # seconds; an open connection outlives it
_LARGE = 2**20  # bytes; aiohttp wants larger bodies as a file, which it writes in pieces


class _Dial:
    """Whether the attempt under way opened a connection; else it was given a used one."""

    __slots__ = ("opened",)

    def __init__(self) -> None:
        self.opened = False


# aiohttp opens sockets in tasks of its own, which inherit the context of the attempt they are for.
_dial: ContextVar[_Dial] = ContextVar("dial")


class Webhook:
    """The destination that posts."""

    def __init__(self, to: Target, destination: Destination, clock: Callable[[], float] = time.time) -> None:
        self._to = to
        self._allow_private = destination.allow_private
        self._limit = destination.max_in_flight
        self._timeout = float(destination.timeout)
        self._in_time = _within(self._timeout)
        self._clock = clock
        self._pooled: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None
        self._closed = False

    async def deliver(self, delivery: Delivery) -> Outcome:
        """One attempt, over within the destination's timeout."""
        try:
            payload = body(delivery)
            headers = self._headers(delivery.key, payload)
        except RENDER_FAULTS as fault:
            return Outcome(OutcomeKind.RENDER, error=f"the request can't be built: {fault}")
        try:
            return await self._post(payload, headers)
        except (TimeoutError, aiohttp.ClientError) as fault:
            return _no_answer(fault, self._to.where)

    async def close(self) -> None:
        """Close the connections; attempts under way fail."""
        self._closed = True
        for session in (self._pooled, self._fresh):
            if session is not None:
                await session.close()

    def _headers(self, key: str, payload: bytes) -> dict[str, str]:
        if not (key and key.isascii() and key.isprintable()):
            raise ValueError("the key does not fit into a header")
        now = int(self._clock())
        headers = {"webhook-id": key, "webhook-timestamp": str(now)}
        if self._to.keys:
            headers["webhook-signature"] = signature(self._to.keys, key, now, payload)
        return headers

    async def _post(self, payload: bytes, headers: dict[str, str]) -> Outcome:
        """Post; once more, on a new connection, when a used one turns out to have been dropped."""
        dial = _Dial()
        _dial.set(dial)
        if self._pooled is None:
            self._pooled = self._session(reuse=True)
        started = time.monotonic()
        try:
            return await self._attempt(self._pooled, payload, headers, self._in_time)
        except aiohttp.ClientConnectionError as fault:
            if dial.opened or self._closed or not _dropped(fault):
                raise
        if self._fresh is None:
            self._fresh = self._session(reuse=False)
        left = max(0.001, self._timeout - (time.monotonic() - started))
        return await self._attempt(self._fresh, payload, headers, _within(left))

    async def _attempt(
        self, session: aiohttp.ClientSession, payload: bytes, headers: dict[str, str], timeout: ClientTimeout
    ) -> Outcome:
        response = await session.post(
            self._to.url,
            data=payload if len(payload) <= _LARGE else io.BytesIO(payload),
            headers=headers,
            allow_redirects=False,
            timeout=timeout,
        )
        try:
            read = await _beginning(response.content)
        finally:
            response.release()  # back to the pool, or closed when the body has not ended
        done = answer.delivered(response.status)
        if done is not None:
            return done
        return answer.refusal(
            response.status,
            response.headers.get("Location"),
            answer.retry_after(response.headers.getall("Retry-After", ()), self._clock()),
            answer.excerpt(read, self._to.secrets),
        )

    def _session(self, *, reuse: bool) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=self._limit,
            force_close=not reuse,
            resolver=guard.Resolver(guarded=not self._allow_private),
            ttl_dns_cache=DNS_TTL,
            socket_factory=_open_any if self._allow_private else _open_public,
        )
        return aiohttp.ClientSession(
            connector=connector,
            headers=self._to.headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )


def make(destination: Destination) -> Webhook:
    """The destination. Raises Unusable for an address, a header or a secret that can't be used."""
    try:
        return Webhook(target(destination), destination)
    except ValueError as fault:
        raise Unusable(f"destination {destination.name}: {fault}") from None


def _open_public(address: AddrInfoType) -> socket.socket:
    opened = guard.open_socket(address)
    _dial.get().opened = True
    return opened


def _open_any(address: AddrInfoType) -> socket.socket:
    _dial.get().opened = True
    return socket.socket(*address[:3])


def _within(seconds: float) -> ClientTimeout:
    # The threshold keeps aiohttp from rounding timeouts above 5 s up to whole seconds.
    return ClientTimeout(seconds, min(CONNECT_TIMEOUT, seconds), ceil_threshold=seconds + 1)


async def _beginning(content: StreamReader) -> bytes:
    """Up to 4 KiB of the answer's body. The status is known: a body that breaks off is just a short one."""
    read = b""
    try:
        while len(read) < answer.READ and not content.at_eof():
            read += await content.read(answer.READ - len(read))
    except (TimeoutError, aiohttp.ClientError):
        return read
    return read


def _dropped(fault: aiohttp.ClientConnectionError) -> bool:
    """Whether the connection went before any byte of the answer.

    A reset tells nothing about bytes before it; on a used connection it is nearly always the receiver's idle
    timeout.
    """
    if isinstance(fault, aiohttp.ServerDisconnectedError):
        return isinstance(fault.message, str)  # else it is the part of the answer that had come
    return isinstance(fault, aiohttp.ClientOSError | aiohttp.ClientConnectionResetError) and not isinstance(
        fault, aiohttp.ClientConnectorError
    )


def _no_answer(fault: Exception, where: str) -> Outcome:
    """The outcome of an attempt that got no answer. aiohttp's own texts may hold the whole URL: not used."""
    match fault:
        case TimeoutError():
            step = "connecting to" if isinstance(fault, aiohttp.ConnectionTimeoutError) else "waiting for"
            return Outcome(OutcomeKind.TIMEOUT, error=f"timeout {step} {where}")
        case aiohttp.ClientConnectorCertificateError():
            return Outcome(
                OutcomeKind.CONNECTION, error=f"TLS with {where} failed: {fault.certificate_error}"
            )
        case aiohttp.ClientConnectorSSLError():
            return Outcome(OutcomeKind.CONNECTION, error=f"TLS with {where} failed: {_cause(fault.os_error)}")
        case aiohttp.ClientConnectorError(os_error=guard.Refused() as refused):
            return Outcome(OutcomeKind.REFUSED, error=f"{where}: {refused}")
        case aiohttp.ClientConnectorError():
            error = f"cannot connect to {where}: {_cause(fault.os_error)}"
            return Outcome(OutcomeKind.CONNECTION, error=error)
        case aiohttp.InvalidURL():
            return Outcome(OutcomeKind.REFUSED, error=f"{where}: not a plain address")
        case aiohttp.ClientResponseError():
            return Outcome(OutcomeKind.FAILED, error=f"the answer of {where} is not HTTP that can be read")
        case _:
            return Outcome(
                OutcomeKind.CONNECTION, error=f"connection to {where} lost: {type(fault).__name__}"
            )


def _cause(fault: OSError) -> str:
    return answer.short(fault.strerror or str(fault))

"""Posts a request and says what came of it: what webhook, slack, pagerduty and summary share.

One attempt: post on a pooled connection, once more on a new one when a used one was dropped, read a little of
the answer, classify. A destination has one Poster; its sessions are made in the running loop with the first
request. Takes bytes and headers; whatever the other side does is an Outcome, nothing is raised for it.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable, Mapping
from ssl import SSLContext

import aiohttp
from aiohttp.payload import BytesIOPayload, BytesPayload, Payload
from msgspec import Struct
from multidict import CIMultiDictProxy

from common.outcomes import Outcome
from dispatcher.destinations import answer, session
from dispatcher.destinations.deadline import Deadlines
from dispatcher.destinations.environment import proxy
from dispatcher.destinations.http_settings import Http
from dispatcher.destinations.request import target
from dispatcher.destinations.tls import Tls, TlsFault, context
from dispatcher.destinations.unanswered import dropped, unanswered

_LARGE = 2**20  # bytes; aiohttp wants larger bodies as a file, which it writes in pieces


class Answer(Struct, frozen=True):
    """What came back. `body` is its beginning, packed if it was; `whole` whether nothing of it is missing."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes
    whole: bool


class Poster:
    """Posts to one destination.

    `headers` go with every request, over those of the settings. `hide` are texts to mask in errors beside
    those in URL and headers, `read` how much of an answer's body is read, bytes. `target` is what is the same
    in every request. Raises ValueError that names the setting that can't be used.
    """

    def __init__(
        self,
        settings: Http,
        *,
        headers: Mapping[str, str] | None = None,
        hide: Iterable[str] = (),
        read: int = answer.READ,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.target = target(settings, headers or {}, hide)
        self._deadlines = Deadlines(float(settings.timeout))
        self._kinds = answer.listed(settings.retry_on, settings.gate_on, settings.reject_on)
        self._plan = session.Plan(
            headers=self.target.headers,
            connect_timeout=min(float(settings.connect_timeout), float(settings.timeout)),
            limit=settings.max_in_flight,
            guarded=not settings.allow_private,
            ssl=_ssl(settings),
            proxy=proxy(self.target.url) if settings.proxy_from_env else None,
        )
        self._read = read
        self._clock = clock
        self._pooled: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None
        self._closed = False

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Outcome:
        """One attempt, over within the destination's timeout; the status alone decides."""
        answered = await self.exchange(body, headers)
        return answered if isinstance(answered, Outcome) else self.classify(answered)

    async def exchange(self, body: bytes, headers: Mapping[str, str]) -> Answer | Outcome:
        """The same for who looks at the answer himself; an Outcome when there was none."""
        arriving = _Arriving()
        try:
            with self._deadlines.limit():
                await self._exchange(body, headers, arriving)
        except (TimeoutError, aiohttp.ClientError) as fault:
            if arriving.response is None:
                return unanswered(fault, self.target.where)
        # The status is known: a body that breaks off, or does not end in time, is just a short one.
        return arriving.answer()

    def classify(self, answered: Answer) -> Outcome:
        """What an answer means by its status."""
        done = answer.delivered(answered.status)
        if done is not None:
            return done
        return answer.refusal(
            answered.status,
            self._kinds.get(answered.status),
            answered.headers.get("Location"),
            answer.retry_after(answered.headers.getall("Retry-After", ()), self._clock()),
            self.excerpt(answered),
        )

    def excerpt(self, answered: Answer) -> str:
        """The beginning of an answer's body for an error: up to 1 KiB, secrets masked."""
        return answer.excerpt(answered.body[: answer.READ], self.target.secrets)

    async def close(self) -> None:
        """Close the connections; attempts under way fail."""
        self._closed = True
        self._deadlines.close()
        for each in (self._pooled, self._fresh):
            if each is not None:
                await each.close()

    async def _exchange(self, body: bytes, headers: Mapping[str, str], arriving: _Arriving) -> None:
        """Once more, on a new connection, when a used one turns out to have been dropped."""
        dial = session.watch()
        if self._pooled is None:
            self._pooled = session.session(self._plan, reuse=True)
        try:
            await self._once(self._pooled, body, headers, arriving)
            return
        except aiohttp.ClientConnectionError as fault:
            if arriving.response is not None or dial.opened or self._closed or not dropped(fault):
                raise
        if self._fresh is None:
            self._fresh = session.session(self._plan, reuse=False)
        await self._once(self._fresh, body, headers, arriving)

    async def _once(
        self, over: aiohttp.ClientSession, body: bytes, headers: Mapping[str, str], arriving: _Arriving
    ) -> None:
        response = await over.post(
            self.target.url, data=_payload(body), headers=headers, allow_redirects=False
        )
        arriving.response = response
        try:
            await arriving.read(self._read)
        finally:
            if not arriving.whole:  # else the connection is in the pool already
                response.release()


class _Arriving:
    """An answer while it is read; `response` is None until there is a status."""

    __slots__ = ("body", "response", "whole")

    def __init__(self) -> None:
        self.response: aiohttp.ClientResponse | None = None
        self.body = bytearray()  # it may come in very many pieces
        self.whole = False

    async def read(self, most: int) -> None:
        """Up to so many bytes of the body, and whether it ended there."""
        assert self.response is not None  # noqa: S101 - read when there is one
        content = self.response.content
        while len(self.body) < most and not content.at_eof():
            self.body += await content.read(most - len(self.body))
        self.whole = content.at_eof()

    def answer(self) -> Answer:
        """What has come."""
        assert self.response is not None  # noqa: S101 - asked when there is one
        return Answer(self.response.status, self.response.headers, bytes(self.body), self.whole)


def _payload(body: bytes) -> Payload:
    """Made here since aiohttp would look for its kind each time. It takes large ones as files only."""
    return BytesPayload(body) if len(body) <= _LARGE else BytesIOPayload(io.BytesIO(body))


def _ssl(settings: Http) -> SSLContext | None:
    if settings.tls == Tls():
        return None
    try:
        return context(settings.tls)
    except TlsFault as fault:
        raise ValueError(f"tls.{fault.setting}: {fault}") from None

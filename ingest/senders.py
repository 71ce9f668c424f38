"""Who sends: the tokens of the configuration. Beside the way; `receive` asks before it reads a body.

Takes a request's headers, returns its Sender. Raises Problem: 401 without a token that is known, 400 for
headers that contradict each other. Only hashes of tokens are kept, and no answer repeats one.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterable
from hashlib import sha256
from hmac import compare_digest

from aiohttp import web
from msgspec import Struct
from multidict import CIMultiDict, MultiMapping

from common.http import Handler, Problem, Request
from common.settings import Settings, Token
from common.units import Address

_AUTHORIZATION = "Authorization"
_REALM = 'realm="redispatch"'


class Sender(Struct, frozen=True):
    """Whose token came with a request; `rate` in alerts per second for the whole fleet, None: no limit."""

    name: str
    rate: float | None = None


ANONYMOUS = Sender("anonymous")  # everybody where there are no tokens


def too_open(settings: Settings) -> str | None:
    """Why ingest must not listen where this configuration says, if it must not."""
    if settings.tokens or settings.ingest.allow_anonymous or Address.parse(settings.ingest.listen).loopback:
        return None
    return (
        "anybody who reaches this address may send alerts: "
        "listen on 127.0.0.1, give tokens, or set ingest.allow_anonymous if that is meant"
    )


class Senders:
    """Those of one configuration. Without tokens nobody has to show one."""

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self._known = [
            (bytes.fromhex(token.sha256.reveal()), Sender(token.name, token.rate)) for token in tokens
        ]

    def of(self, headers: MultiMapping[str]) -> Sender:
        """Whoever sent these. Raises Problem (401, 400)."""
        if not self._known:
            return ANONYMOUS
        given = _given(headers)
        if given is None:
            raise _refused(f"Bearer {_REALM}", "this needs a token: Authorization: Bearer ...")
        digest = sha256(given).digest()
        found: Sender | None = None
        for known, sender in self._known:  # all of them, so that the time tells nothing
            if compare_digest(known, digest):
                found = sender
        if found is None:
            raise _refused(f'Bearer {_REALM}, error="invalid_token"', "the token is not known")
        return found

    def guard(self, handler: Handler) -> Handler:
        """The same handler, for those with a token alone."""

        async def handle(request: Request) -> web.StreamResponse:
            self.of(request.headers)
            return await handler(request)

        return handle


OPEN = Senders()  # to everybody


def _refused(bearer: str, detail: str) -> Problem:
    """Basic is named too, since curl's library, and so collectd, looks for it before it sends a password."""
    challenges = CIMultiDict([("WWW-Authenticate", bearer), ("WWW-Authenticate", f"Basic {_REALM}")])
    return Problem(401, detail, headers=challenges)


def _given(headers: MultiMapping[str]) -> bytes | None:
    """The token: of Bearer, or the password of Basic, whatever the user's name. Raises Problem (400)."""
    told = headers.getall(_AUTHORIZATION, ())
    if not told:
        return None
    if len(set(told)) > 1:
        raise Problem(400, f"{_AUTHORIZATION} is there more than once, with different values")
    scheme, _, rest = told[0].encode("utf-8", "surrogateescape").strip().partition(b" ")
    if scheme.lower() == b"basic":
        return _password(rest.strip())
    return rest.strip() if scheme.lower() == b"bearer" else None


def _password(credentials: bytes) -> bytes:
    """Empty, which no token is, for what is none."""
    try:
        return b64decode(credentials, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""

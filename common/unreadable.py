"""A connection on which something came that is no HTTP: refused as a problem, like all else.

`Refusing` is aiohttp's protocol of one connection; what it can't read goes to `refuse` with status and why,
which answers it. The connection ends with that answer, since nobody knows where the next request begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

Refuse: TypeAlias = Callable[[web.BaseRequest, int, str], web.StreamResponse]


class Refusing(web.RequestHandler):
    """Of one connection."""

    __slots__ = ("_refuse",)

    def __init__(self, manager: web.Server, refuse: Refuse, **options: Any) -> None:
        super().__init__(manager, **options)
        self._refuse = refuse

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What aiohttp answers when it could not read a request, or a handler raised."""
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        refusal = self._refuse(request, status, _in_a_line(exc.message))
        refusal.force_close()
        return refusal


def _in_a_line(message: str) -> str:
    """Without the picture of where in the bytes it was."""
    return message.partition("\n")[0].rstrip(":")

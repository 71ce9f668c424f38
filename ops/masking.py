"""A request as it may be shown: no secret of the settings is in it.

Takes a destination's settings, the destination and its Request; returns texts. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct, structs
from yarl import URL

from common.settings import Destination
from common.units import Secret
from dispatcher.destinations.base import Request
from dispatcher.destinations.request import Target

_TELLING = 8  # characters; shorter texts are too common to be masked
_TEMPLATE = "template"  # a text of the operator's, not a secret, although it may be in a file like one
_MASK = "***"


class Shown(Struct, frozen=True):
    """What goes over the wire; `url` None when the type does not tell where it posts."""

    method: str
    url: str | None
    headers: dict[str, str]
    body: str


def shown(settings: Destination, one: object, request: Request) -> Shown:
    """The request with `***` for secrets; a signature is that of the real body."""
    target: Target | None = getattr(one, "target", None)
    secrets = sorted(_texts(settings), key=len, reverse=True)
    headers = {} if target is None else _always(target.headers, _named(settings))
    headers |= {name: _masked(value, secrets) for name, value in request.headers.items()}
    body = _masked(request.body.decode(errors="replace"), secrets)
    return Shown("POST", None if target is None else _address(target.url), headers, body)


def _address(url: URL) -> str:
    """Host and port only: the rest of a webhook's address often is the password."""
    return str(url.origin()) + ("/" if url.path_qs == "/" else f"/{_MASK}")


def _named(settings: Destination) -> set[str]:
    given: Mapping[str, Secret] = getattr(settings, "headers", {})
    return {name.lower() for name in given} - {"content-type"}


def _always(headers: Mapping[str, str], given: set[str]) -> dict[str, str]:
    hidden = given | {"authorization"}
    return {name: _MASK if name in hidden else value for name, value in headers.items()}


def _texts(settings: Destination) -> set[str]:
    found: set[str] = set()
    for name in settings.__struct_fields__:
        for secret in () if name == _TEMPLATE else _secrets(getattr(settings, name)):
            found |= {secret, *secret.split(), secret.removeprefix("whsec_")}
    return {text for text in found if len(text) >= _TELLING}


def _secrets(value: object) -> Iterator[str]:
    if isinstance(value, Secret):
        yield value.reveal()
    elif isinstance(value, Struct):
        for each in structs.astuple(value):
            yield from _secrets(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _secrets(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _secrets(each)


def _masked(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        in_json = msgspec.json.encode(secret).decode()[1:-1]
        text = text.replace(secret, _MASK).replace(in_json, _MASK)
    return text

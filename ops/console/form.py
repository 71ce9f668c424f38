"""What a browser sends: fields of a form or of an address, bounded, as texts. Pure but for reading the body.

Raises Problem: 413, 415, 408, 400.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeAlias
from urllib.parse import parse_qsl

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from common.http import Problem, Request

MOST = 65_536  # bytes
FIELDS = 1000
PATIENCE = 10.0  # seconds
LONGEST = 4096  # characters of one field

Fields: TypeAlias = Mapping[str, list[str]]


async def body(request: Request) -> Fields:
    """The fields of a POST."""
    if request.content_type != "application/x-www-form-urlencoded" or "Content-Encoding" in request.headers:
        raise Problem(415, "expected a form: application/x-www-form-urlencoded")
    if (request.content_length or 0) > MOST:
        raise Problem(413, f"more than {MOST} bytes")
    read = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            while not request.content.at_eof():
                read += await request.content.readany()
                if len(read) > MOST:
                    raise Problem(413, f"more than {MOST} bytes")
    except TimeoutError:
        raise Problem(408, f"the form did not arrive within {PATIENCE:g} s") from None
    except (HttpProcessingError, web.RequestPayloadError, ConnectionError) as fault:
        raise Problem(400, "the form broke off") from fault
    return parsed(bytes(read).decode("utf-8", "replace"))


def query(request: Request) -> Fields:
    """The fields of an address."""
    return parsed(request.rel_url.raw_query_string)


def parsed(text: str) -> Fields:
    """Fields by name; empty ones are left out."""
    try:
        pairs = parse_qsl(text, max_num_fields=FIELDS, encoding="utf-8", errors="replace")
    except ValueError:
        raise Problem(400, f"more than {FIELDS} fields") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        if len(value) > LONGEST:
            raise Problem(400, f"{name[:50]}: longer than {LONGEST} characters")
        fields.setdefault(name, []).append(value)
    return fields


def one(fields: Fields, name: str) -> str:
    """The first of that name, without spaces around; empty when there is none."""
    return fields.get(name, [""])[0].strip()

"""`/openapi.json` and `/docs`: the document of `openapi.py`, and a plain page of it without foreign assets.

Made once, when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from html import escape
from typing import Any

import msgspec
from aiohttp import web

from common.http import Handler, Request, answer
from ingest.openapi import document

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code, pre { font-family: ui-monospace, monospace; font-size: 90% }
pre { background: #8881; padding: .75rem; overflow-x: auto }
table { border-collapse: collapse }
td, th { text-align: left; padding: .15rem 1rem .15rem 0; vertical-align: top }
h2 { border-top: 1px solid #8885; padding-top: 1rem }
:root { color-scheme: light dark }
"""


def handlers() -> dict[str, Handler]:
    """By path; each is for GET."""
    return {"/openapi.json": openapi, "/docs": docs}


async def openapi(request: Request) -> web.StreamResponse:
    """`GET /openapi.json`."""
    return answer(request, 200, _json())


async def docs(request: Request) -> web.StreamResponse:
    """`GET /docs`."""
    policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return web.Response(body=page(), content_type="text/html", charset="utf-8", headers=policy)


@lru_cache(maxsize=1)
def _json() -> bytes:
    return msgspec.json.encode(document())


@lru_cache(maxsize=1)
def page() -> bytes:
    """The page."""
    told = document()
    title = escape(told["info"]["title"])
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>',
        f"<h1>{title} {escape(told['info']['version'])}</h1><p>{escape(told['info']['summary'])}. ",
        'For machines: <a href="openapi.json">openapi.json</a>.</p>',
    ]
    for path, methods in told["paths"].items():
        for method, operation in methods.items():
            parts += _operation(f"{method.upper()} {path}", operation)
    parts.append("<h1>Types</h1>")
    for name, schema in told["components"]["schemas"].items():
        parts += _schema(name, schema)
    return "\n".join([*parts, "</html>"]).encode()


def _operation(name: str, told: dict[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{escape(name)}</code></h2><p>{escape(told['summary'])}</p>"
    content = told.get("requestBody", {}).get("content", {})
    if content:
        yield _table(["body", "is"], [[media, _kind(one["schema"])] for media, one in content.items()])
    for one in content.values():
        if "example" in one:
            yield f"<pre>{escape(msgspec.json.format(msgspec.json.encode(one['example'])).decode())}</pre>"
    rows = [
        [status, ", ".join(_kind(one["schema"]) for one in answer["content"].values()), answer["description"]]
        for status, answer in told["responses"].items()
    ]
    yield _table(["status", "answer", "meaning"], rows)


def _schema(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{escape(name)}</code></h2><p>{escape(schema.get('description', ''))}</p>"
    required = schema.get("required", [])
    fields = schema.get("properties", {}).items()
    rows = [[field, _kind(one), "required" if field in required else ""] for field, one in fields]
    if rows:
        yield _table(["field", "is", ""], rows)


def _kind(schema: dict[str, Any]) -> str:
    """In a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"array of {_kind(schema.get('items', {}))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_kind(schema['additionalProperties'])}"
    return str(schema.get("format") or schema.get("type") or "anything")


def _table(heads: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    lines = ("".join(f"<td>{escape(one)}</td>" for one in row) for row in rows)
    return f"<table><tr>{head}</tr>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"

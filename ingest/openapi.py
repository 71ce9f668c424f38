"""The OpenAPI 3.1 document of ingest, drawn from the table of operations and the types themselves. Pure.

`document()` is what `/openapi.json` answers; `ingest/page.py` makes a page for people of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from common import __version__
from common.http import PROBES
from ingest import chosen
from ingest.formats import collectd, native, prometheus, telegraf
from ingest.formats.bodies import Rejected
from ingest.inflate import SUPPORTED
from ingest.operations import JSON, OPERATIONS, Operation, Types

Json: TypeAlias = dict[str, Any]

PROBLEM = "application/problem+json"
MEANING = {
    200: "known already, or nothing new",
    201: "stored",
    207: "some items are wrong, `rejected` says which; all others are stored",
    400: "not one item is valid, or the body as a whole is none",
    401: "a token is missing or not known",
    404: "there is no such thing",
    408: "the body did not arrive in time",
    413: "the body, or an item, is too large",
    415: "the content type or the encoding is not supported",
    417: "only 100-continue can be expected",
    429: "the sender is over its rate",
    500: "a bug; the log has more",
    503: "not stored, or not as safely as wanted: send it again",
}
_HEADERS = {
    401: {"WWW-Authenticate": {"schema": {"type": "string"}}},
    415: {"Accept-Encoding": {"schema": {"type": "string"}, "description": SUPPORTED}},
    429: {"Retry-After": {"schema": {"type": "string"}, "description": "seconds"}},
    503: {"Retry-After": {"schema": {"type": "string"}, "description": "seconds"}},
}
_NAMES = {
    prometheus.Item: "PrometheusAlert",
    collectd.Item: "CollectdItem",
    telegraf.Item: "TelegrafMetric",
    native.AlertBody: "Alert",
    native.ReadingBody: "Reading",
}
_REF = "#/components/schemas/{name}"


class Refusal(Struct, omit_defaults=True):
    """RFC 9457. `errors`: of a single item; the other four: of a batch."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[Rejected] = []
    rejected: list[Rejected] = []
    accepted: int = 0
    duplicates: int = 0
    stored: int = 0


@lru_cache(maxsize=1)
def document() -> Json:
    """The whole of it."""
    schemas = _Schemas([Refusal, *_NAMES, *_types(OPERATIONS)])
    paths: dict[str, Json] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "redispatch ingest",
            "version": __version__,
            "summary": "Alerts and readings over HTTP to every destination",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": {**paths, **_probes()},
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],  # none where the configuration has no tokens
    }


class _Schemas:
    """JSON schemas of types, with names of their own for those that are all called Item."""

    def __init__(self, types: Iterable[Any]) -> None:
        self._types = list(types)
        found, components = msgspec.json.schema_components(self._types, ref_template=_REF)
        told = {
            schema["$ref"].rpartition("/")[2]: _NAMES[kind]
            for kind, schema in zip(self._types, found, strict=True)
            if kind in _NAMES
        }
        self._found = [_renamed(schema, told) for schema in found]
        self.components: Json = {
            told.get(name, name.rpartition("_")[2]): _renamed(schema, told)
            for name, schema in sorted(components.items())
        }

    def any_of(self, types: Types) -> Json:
        """The schema of any of them."""
        told = [self._found[self._types.index(kind)] for kind in types]
        return {} if not told else told[0] if len(told) == 1 else {"anyOf": told}


def _types(operations: Iterable[Operation]) -> Iterable[Any]:
    for operation in operations:
        for types in (*operation.takes.values(), *operation.answers.values()):
            yield from types


def _renamed(schema: Any, names: Mapping[str, str]) -> Any:
    """With references to the names that are used here."""
    if isinstance(schema, list):
        return [_renamed(one, names) for one in schema]
    if not isinstance(schema, dict):
        return schema
    told = {key: _renamed(value, names) for key, value in schema.items()}
    if "$ref" in told:
        name = told["$ref"].rpartition("/")[2]
        told["$ref"] = _REF.format(name=names.get(name, name.rpartition("_")[2]))
    if told.get("title") in ("Item", "AlertBody", "ReadingBody"):
        del told["title"]
    return told


def _operation(operation: Operation, schemas: _Schemas) -> Json:
    told: Json = {
        "summary": operation.summary,
        "operationId": _id(operation),
        "responses": {
            **{str(status): _answer(operation, status, schemas) for status in operation.answers},
            **{str(status): _problem(status) for status in sorted(operation.problems)},
        },
    }
    parameters = [_parameter(name) for name in re.findall(r"\{(\w+)\}", operation.path)]
    if operation.takes:
        parameters.append(_IDEMPOTENCY_KEY)
        told["requestBody"] = {
            "required": True,
            "description": f"Content-Encoding may be {SUPPORTED}",
            "content": {
                media: _content(operation, media, schemas.any_of(types))
                for media, types in operation.takes.items()
            },
        }
    if parameters:
        told["parameters"] = parameters
    if operation.open:
        told["security"] = []
    return told


def _id(operation: Operation) -> str:
    words = re.findall(r"\w+", operation.path)
    return "_".join([operation.method.lower(), *words])


def _content(operation: Operation, media: str, schema: Json) -> Json:
    first = next(iter(operation.takes))
    return {"schema": schema} | ({"example": operation.example} if media == first else {})


def _answer(operation: Operation, status: int, schemas: _Schemas) -> Json:
    meaning = MEANING[status] if operation.takes else "what was asked for"
    schema = schemas.any_of(operation.answers[status])
    return {"description": meaning, "content": {operation.media: {"schema": schema}}}


def _problem(status: int) -> Json:
    told = {"schema": {"$ref": _REF.format(name="Refusal")}}
    headers = {"headers": _HEADERS[status]} if status in _HEADERS else {}
    return {"description": MEANING[status], **headers, "content": {PROBLEM: told}}


def _parameter(name: str) -> Json:
    meaning = {"key": "of the alert, as the answer to it said", "name": "of a hook in the configuration"}
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "description": meaning[name], "schema": schema}


_IDEMPOTENCY_KEY = {
    "name": chosen.HEADER,
    "in": "header",
    "description": "chooses the key instead of incident and time; printable characters",
    "schema": {"type": "string", "minLength": 1, "maxLength": chosen.LONGEST},
}


def _probes() -> Json:
    """What every Site adds."""
    said = {
        "/healthz": "Whether it runs",
        "/readyz": "Whether it takes requests",
        "/metrics": "Prometheus",
    }
    media = {"/metrics": "text/plain"}
    told: Json = {}
    for path in PROBES:
        answers: Json = {
            "200": {"description": "yes", "content": {media.get(path, JSON): {"schema": {}}}},
            **({"503": _problem(503)} if path == "/readyz" else {}),
        }
        name = path.strip("/")
        told[path] = {
            "get": {
                "summary": said[path],
                "operationId": f"get_{name}",
                "responses": answers,
                "security": [],
            }
        }
    return told

"""The OpenAPI document is one, tells of every route and type, and the page for people shows it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from common.http import PROBES
from ingest import operations
from ingest.formats import bodies, cloudevents, native
from ingest.metrics import CODES
from ingest.openapi import MEANING, document
from ingest.page import handlers, page

OPERATIONS = [
    (path, method, told) for path, item in document()["paths"].items() for method, told in item.items()
]


def test_it_is_one() -> None:
    OpenAPIV31SpecValidator(document()).validate()
    assert msgspec.json.decode(msgspec.json.encode(document())) == document()


def test_it_has_every_route() -> None:
    assert set(document()["paths"]) == {*operations.PATHS, *PROBES}
    assert {path for path, method, _ in OPERATIONS if method == "post"} == set(operations.POSTED)


def test_handlers_and_table_have_to_agree() -> None:
    given: dict[str, Any] = dict.fromkeys(operations.PATHS)
    assert operations.routes(given)["/v1/alerts/{key}"] == {"GET": None}
    less: dict[str, Any] = dict.fromkeys(handlers())
    for wrong in (given | {"/more": None}, less):
        with pytest.raises(ValueError, match="not in both"):
            operations.routes(wrong)


def test_every_status_is_one_that_is_counted() -> None:
    told = {int(status) for *_, operation in OPERATIONS for status in operation["responses"]}
    assert told <= set(CODES)
    assert {404, 405} >= set(CODES) - set(MEANING)
    for path in ("/api/v2/alerts", "/v1/alertmanager", "/v1/grafana", "/v1/hooks/{name}"):
        assert "429" not in document()["paths"][path]["post"]["responses"]


def test_every_reference_leads_somewhere_and_every_schema_is_used() -> None:
    text = msgspec.json.encode(document()).decode()
    used = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert used == set(document()["components"]["schemas"])


def test_examples_are_taken() -> None:
    for path, read in (("/v1/alerts", native.alerts), ("/v1/readings", native.readings)):
        content = document()["paths"][path]["post"]["requestBody"]["content"]
        body = msgspec.json.encode(content["application/json"]["example"])
        parsed = read(body, bodies.Kind.JSON, 1_772_439_277_000, 1000)
        assert (len(parsed.items), parsed.rejected) == (1, [])


def test_an_event_is_what_its_format_takes() -> None:
    """It has a shape of its own here, since the format leaves `data` as it is."""
    assert operations.CloudEvent.__struct_fields__ == cloudevents.Item.__struct_fields__


class Page(HTMLParser):
    """Collects what would be loaded from elsewhere, and the texts."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "img", "link", "iframe")
        self.links += [value or "" for name, value in attributes if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_tells_all_and_loads_nothing() -> None:
    parsed = Page()
    parsed.feed(page().decode())
    assert parsed.links == ["openapi.json"]
    for path, method, told in OPERATIONS:
        assert f"{method.upper()} {path}" in parsed.text
        assert told["summary"] in parsed.text
    for name in document()["components"]["schemas"]:
        assert name in parsed.text

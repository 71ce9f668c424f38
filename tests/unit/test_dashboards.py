"""The dashboards: current, whole, and each panel says what it shows and what to do."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from common.settings import Settings
from common.units import Address
from grafana import generate
from grafana.generate import DASHBOARDS
from tests.rules.pages import DOCS, anchors

HEADINGS = anchors(DOCS / "operations.md")
PANELS = [
    pytest.param(panel, id=f"{name}-{panel.title}")
    for name, dashboard in DASHBOARDS.items()
    for row in dashboard.rows
    for panel in row.panels
]


def load(name: str) -> Any:
    """The JSON that is committed."""
    return json.loads(generate.file(name).read_text("utf-8"))


def test_the_files_are_current() -> None:
    assert generate.stale() == []
    assert {path.stem for path in generate.file("any").parent.iterdir()} == set(DASHBOARDS)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_have_places_of_their_own(name: str) -> None:
    told = load(name)
    ids = [panel["id"] for panel in told["panels"]]
    assert len(set(ids)) == len(ids)
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in told["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert {x for x, _ in taken} == set(range(24))


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_variable_is_used_and_there(name: str) -> None:
    told = generate.file(name).read_text("utf-8")
    known = {variable["name"] for variable in json.loads(told)["templating"]["list"]}
    assert known >= {"datasource", "namespace", "job", "runbook"}
    unused = [name for name in known if f"${name}" not in told and f"${{{name}}}" not in told]
    assert unused == []


def test_each_dashboard_is_another() -> None:
    uids = [dashboard.uid for dashboard in DASHBOARDS.values()]
    assert len(set(uids)) == len(uids)


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_says_what_it_shows_and_what_to_do(panel: Any) -> None:
    assert panel.text.endswith(".")
    assert panel.unit
    assert panel.queries
    assert not panel.heading or panel.heading in HEADINGS


def read(path: str) -> Any:
    """A YAML file of `grafana/`."""
    return yaml.safe_load((generate.HERE / path).read_text("utf-8"))


def test_what_provisions_grafana_and_prometheus_finds_the_services() -> None:
    [source] = read("provisioning/datasources/prometheus.yaml")["datasources"]
    told = read("prometheus/prometheus.yaml")
    assert source["jsonData"]["timeInterval"] == told["global"]["scrape_interval"]
    ports = {job["job_name"]: job["dns_sd_configs"][0]["port"] for job in told["scrape_configs"]}
    defaults = Settings()
    assert ports == {
        "redispatch-ingest": Address.parse(defaults.ingest.listen).port,
        "redispatch-dispatcher": Address.parse(defaults.dispatcher.listen).port,
    }
    [provider] = read("provisioning/dashboards/redispatch.yaml")["providers"]
    assert provider["type"] == "file"


def test_every_picture_is_there_and_light() -> None:
    shown = set(re.findall(r"\(pictures/([\w-]+\.png)\)", (DOCS / "dashboards.md").read_text("utf-8")))
    there = {path.name: path.stat().st_size for path in (DOCS / "pictures").glob("*.png")}
    assert shown
    assert shown <= set(there)
    assert max(there.values()) < 200_000

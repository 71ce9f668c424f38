"""The manifests agree with the code, with each other and with the documents."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from k8s import generate
from k8s.check import agreement, run, schema
from tests.k8s.bundles import K8S, OVERLAYS, rendered
from tests.rules.pages import DOCS, ROOT
from tests.support.senders import installed

PAGE = (DOCS / "kubernetes.md").read_text("utf-8")


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_nothing_is_wrong(overlay: str) -> None:
    installed("promtool")  # without which rules are looked at less closely
    assert [str(each) for each in run.run(rendered(overlay))] == []


def test_the_rules_of_the_operator_are_current() -> None:
    assert not generate.stale(), "python k8s/generate.py"


def test_every_dashboard_is_shipped() -> None:
    there = {path.name for path in (ROOT / "grafana" / "dashboards").glob("*.json")}
    maps = [each["data"] for each in rendered("production") if each["kind"] == "ConfigMap"]
    assert {key for data in maps for key in data if key.endswith(".json")} == there


def test_selectors_are_the_same_everywhere() -> None:
    """They can't be changed, so that nobody could go from one overlay to another."""
    told: dict[str, list[Any]] = {}
    for overlay in OVERLAYS:
        for each in rendered(overlay):
            if each["kind"] == "Deployment":
                told.setdefault(each["metadata"]["name"], []).append(each["spec"]["selector"])
    assert len(told) == 3
    assert {name for name, selectors in told.items() if selectors != [selectors[0]] * 3} == set()


def test_every_secret_of_a_site_is_explained() -> None:
    told = yaml.safe_load((K8S / "provided.yaml").read_text("utf-8"))
    for name, keys in told["secrets"].items():
        assert [key for key in (name, *keys) if f"`{key}`" not in PAGE] == [], name
    named = {name for each in rendered("production") for name in re.findall(r"redispatch-[a-z-]+", str(each))}
    assert set(told["secrets"]) <= named


def test_the_pods_are_run_by_the_image_s_user() -> None:
    assert f"USER {agreement.UID}:{agreement.UID}" in (ROOT / "Dockerfile").read_text("utf-8").splitlines()


def test_the_versions_are_those_that_are_checked() -> None:
    assert f"Kubernetes {schema.VERSIONS[0]} to {schema.VERSIONS[-1]}" in PAGE

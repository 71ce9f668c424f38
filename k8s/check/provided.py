"""What a site brings (`k8s/provided.yaml`), as the checks ask for it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

from k8s.check.bundle import Json, fits

FILE = Path(__file__).parents[1] / "provided.yaml"


@cache
def _told() -> Json:
    told: Json = yaml.safe_load(FILE.read_text("utf-8"))
    return told


def secret(name: str) -> dict[str, str] | None:
    """The keys of a Secret, with values that stand in for real ones."""
    found: dict[str, str] | None = _told()["secrets"].get(name)
    return found


def services() -> list[str]:
    """Addresses of other namespaces, host and port."""
    found: list[str] = _told()["services"]
    return found


def has_peer(namespaces: Json, pods: Json | None) -> bool:
    """Whether there are such pods in such namespaces; `pods` None: all of them."""
    for each in _told()["namespaces"]:
        if fits(namespaces, each["labels"]) and (
            pods is None or any(fits(pods, pod["labels"]) for pod in each["pods"])
        ):
            return True
    return False


def has_pods(namespaces: Json) -> bool:
    """Whether it is certain pods there that are meant."""
    return any(each["pods"] for each in _told()["namespaces"] if fits(namespaces, each["labels"]))

"""The overlays as tests have them: rendered once in each process."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from k8s.check.bundle import parse
from k8s.check.render import NoKubectl, render

OVERLAYS = ("dev", "production", "keda")
K8S = Path(__file__).parents[2] / "k8s"


@cache
def rendered(overlay: str) -> list[Any]:
    """The objects of one overlay, not to be changed; without kubectl the test ends here."""
    try:
        return parse(render(K8S / "overlays" / overlay))
    except NoKubectl as fault:
        if "CI" in os.environ:
            pytest.fail(str(fault), pytrace=False)
        pytest.skip(str(fault))


def find(objects: list[Any], about: str) -> Any:
    """The object of that kind and name."""
    kind, _, name = about.partition("/")
    [found] = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found

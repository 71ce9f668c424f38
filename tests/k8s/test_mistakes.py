"""Whatever people do wrong in manifests is found, and by the check that is about it."""

from __future__ import annotations

import copy
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s.check import run
from tests.k8s.bundles import find, rendered
from tests.support.senders import installed

TABLE = yaml.safe_load((Path(__file__).parent / "mistakes.yaml").read_text("utf-8"))
MISTAKES = [
    pytest.param(check, mistake, id=mistake["what"].replace(" ", "-"))
    for check, mistakes in TABLE.items()
    for mistake in mistakes
]


@pytest.mark.parametrize(("check", "mistake"), MISTAKES)
def test_it_is_found(check: str, mistake: dict[str, Any]) -> None:
    if check == "monitoring":
        installed("promtool")  # without which rules are looked at less closely
    objects = copy.deepcopy(rendered(mistake.get("overlay", "dev")))
    for part in mistake.get("both", [mistake]):
        make(objects, part)
    found = run.run(objects)
    assert [each for each in found if each.check == check and mistake["says"] in each.words], found


def make(objects: list[Any], mistake: dict[str, Any]) -> None:
    """Do to the objects what the table says."""
    if "add" in mistake:
        objects.append(mistake["add"])
    if "remove" in mistake:
        objects.remove(find(objects, mistake["remove"]))
    item = find(objects, mistake["in"]) if "in" in mistake else None
    for path, value in mistake.get("put", {}).items():
        put(item, path, value)
    for path in mistake.get("drop", []):
        node, key = place(item, path)
        del node[key]
    for path, (old, new) in mistake.get("swap", {}).items():
        node, key = place(item, path)
        assert old in node[key]
        node[key] = node[key].replace(old, new)
    if "copy" in mistake:
        node, key = place(item, mistake["copy"]) if mistake["copy"] else (objects, objects.index(item))
        node.append(copy.deepcopy(node[key]))
    if "grow" in mistake:
        node, key = place(item, mistake["grow"])
        node[key] += "# and more\n" * 100_000


def put(item: Any, path: str, value: Any) -> None:
    """Set a field, or append to a list when the path ends in `-`."""
    node, key = place(item, path.removesuffix(".-"))
    if path.endswith(".-"):
        node[key].append(value)
    else:
        node[key] = value


def place(item: Any, path: str) -> tuple[Any, Any]:
    """What holds the last step of a path, and that step."""
    path = re.sub(r"^box\.", "pod.containers.0.", path)
    steps = re.split(r"(?<!\\)\.", re.sub(r"^pod\.", "spec.template.spec.", path))
    node: Any = item
    step: Any = ""
    for number, key in enumerate(step.replace("\\.", ".") for step in steps):
        node = node[step] if number else node
        step = key
        if isinstance(node, list):
            step = int(key) if key.isdigit() else [each.get("name") for each in node].index(key)
    return node, step


def test_they_are_many_and_about_every_check() -> None:
    assert list(TABLE) == ["schema", *(name for name, _ in run.CHECKS)]
    assert min(map(len, TABLE.values())) >= 7
    assert Counter(mistake.id for mistake in MISTAKES).most_common(1)[0][1] == 1

"""First check: each object is what its kind's schema says, in the oldest and the newest Kubernetes that is
meant.

Takes documents as parsed; yields what does not fit. Custom resources go by their CRDs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from k8s.check.bundle import Json, walk

DATA = Path(__file__).parent / "data"
VERSIONS = ("1.30", "1.37")
_DEFAULTS = {"protocol": "TCP"}  # of fields that are part of a list's key


def check(documents: Iterable[Any]) -> Iterator[tuple[Any, str, str]]:
    """What is no object, of no known kind, or not as its schema has it."""
    for document in documents:
        if not isinstance(document, dict):
            yield document, "", f"is no object, but {type(document).__name__}"
            continue
        if not all(isinstance(document.get(key), str) for key in ("apiVersion", "kind")):
            yield document, "", "is no object: it needs apiVersion and kind"
            continue
        text = json.dumps(document)
        faults = dict.fromkeys(fault for version in VERSIONS for fault in _faults(text, version))
        yield from ((document, *fault) for fault in faults)
        yield from (
            (document, path, "is null: say what is meant, or leave it out") for path in _nulls(document)
        )


def _nulls(document: Json) -> Iterator[str]:
    return (path for path, _, value in walk(document) if value is None)


@lru_cache(maxsize=4096)  # most objects of an overlay are those of another one
def _faults(text: str, version: str) -> tuple[tuple[str, str], ...]:
    document = json.loads(text)
    told = document.get("apiVersion"), document.get("kind")
    validator = _validators(version).get(told)
    if validator is None:
        what = f"Kubernetes {version} has no {told[1]} in {told[0]}, nor has a CRD that is known here"
        return (("", what),)
    found = [(_path(fault), _words(fault)) for fault in validator.iter_errors(document)]
    if not found and not document["metadata"].get("name"):
        found = [("metadata.name", "is missing")]
    return tuple(found)


def _path(fault: ValidationError) -> str:
    """As people write it; the items of a list by their number."""
    path = ""
    for step in fault.absolute_path:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.removeprefix(".")


def _words(fault: ValidationError) -> str:
    """Of several forms of which none fits: why the nearest does not."""
    text = fault.message
    return text if len(text) < 300 else f"{text[:200]} ... {text[-90:]}"


@cache
def _validators(version: str) -> dict[tuple[str, str], Any]:
    """By apiVersion and kind."""
    definitions = json.loads((DATA / f"kubernetes-{version}.json").read_text("utf-8"))
    definitions |= json.loads((DATA / "resources.json").read_text("utf-8"))
    definitions["io.k8s.api.core.v1.PodTemplateSpec"]["required"] = ["spec"]  # as the server has it
    definitions["io.k8s.api.batch.v1.JobTemplateSpec"]["required"] = ["spec"]
    found = {}
    for name, schema in definitions.items():
        for told in schema.get("x-kubernetes-group-version-kind", []):
            group = f"{told['group']}/" if told["group"] else ""
            needed = [
                "metadata",
                *(["spec"] if "spec" in schema["properties"] and told["kind"] != "Namespace" else []),
            ]
            whole = {"$ref": f"#/$defs/{name}", "$defs": definitions, "required": needed}
            found[f"{group}{told['version']}", told["kind"]] = _Validator(whole)
    return found


def _keyed(validator: Any, kind: str, items: Any, schema: Json) -> Iterator[ValidationError]:
    """x-kubernetes-list-type: the items of a set, and the keys of a map's items, are there once."""
    if not isinstance(items, list) or kind == "atomic":
        return
    keys = schema.get("x-kubernetes-list-map-keys", [])
    told = [_key(item, keys) for item in items if kind == "set" or isinstance(item, dict)]
    for key, times in Counter(told).items():
        if times > 1:
            yield ValidationError(f"{key} is there {times} times")


def _key(item: Any, keys: list[str]) -> str:
    if not keys:
        return json.dumps(item)
    return ", ".join(f"{key} {item.get(key, _DEFAULTS.get(key))}" for key in keys)


_Validator: Any = extend(  # type: ignore[no-untyped-call]  # its stubs lack types here
    Draft202012Validator, {"x-kubernetes-list-type": _keyed}
)

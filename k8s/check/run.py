"""All checks, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from k8s.check import (
    agreement,
    durable,
    monitoring,
    network,
    objects,
    pods,
    policy,
    references,
    scaling,
    schema,
    values,
)
from k8s.check.bundle import Bundle, Finding, Found, about

# Those after the schema's take objects for what their schema says.
CHECKS: tuple[tuple[str, Callable[[Bundle], Found]], ...] = (
    ("values", values.check),
    ("objects", objects.check),
    ("pods", pods.check),
    ("references", references.check),
    ("scaling", scaling.check),
    ("network", network.check),
    ("monitoring", monitoring.check),
    ("policy", policy.check),
    ("agreement", agreement.check),
    ("durable", durable.check),
)


def run(documents: Iterable[Any]) -> Sequence[Finding]:
    """What is wrong with the documents of one overlay."""
    documents = list(documents)
    found = [Finding("schema", about(item), path, words) for item, path, words in schema.check(documents)]
    bundle = Bundle(tuple(documents))
    for name, check in CHECKS if not found else ():
        found += [Finding(name, about(item), path, words) for item, path, words in check(bundle)]
    return list(dict.fromkeys(found))

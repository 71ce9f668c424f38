"""PromQL: does a query parse, and does it speak of metrics and labels that exist?

The metrics are those of `docs/metrics.md`, which is drawn from the code. Takes queries; yields words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import promql_parser as promql

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
PREFIX = "redispatch_"
_ADDED = {
    "job",
    "instance",
    "namespace",
    "pod",
    "container",
    "endpoint",
    "alertname",
    "severity",
    "alertstate",
}
_ONE = ("sum", "max", "min", "avg", "count", "group", "stddev", "stdvar", "quantile")


@cache
def known() -> dict[str, set[str]]:
    """Each series with its labels; a histogram's parts are series."""
    found: dict[str, set[str]] = {}
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith(f"| `{PREFIX}"):
            labels = set(re.findall(r"(?:^|; )`(\w+)`", cells[2]))
            name = cells[0].strip("| `")
            names = [
                name,
                *(f"{name}_{part}" for part in ("bucket", "sum", "count") if cells[1] == "histogram"),
            ]
            found |= {each: labels | ({"le"} if each.endswith("_bucket") else set()) for each in names}
    return found


@lru_cache(maxsize=1024)
def _parsed(query: str) -> Any:
    return promql.parse(query)


def faults(query: str) -> Iterator[str]:
    """It does not parse, or names what does not exist."""
    try:
        expression = _parsed(query)
    except ValueError as fault:
        yield f"the query does not parse: {fault}"
        return
    for selector in _selectors(expression):
        name = selector.name or ""
        if name.startswith(PREFIX) and name not in known():
            yield f"there is no metric {name}"
        elif name in known():
            told = {matcher.name for matcher in selector.matchers.matchers}
            yield from (f"{name} has no label {label}" for label in sorted(told - known()[name] - _ADDED))


def named(query: str) -> set[str]:
    """Metrics of ours in it."""
    return set(re.findall(rf"\b{PREFIX}\w+", query))


def not_one(query: str) -> Iterator[str]:
    """Why it may give several figures, or None of ours, to one who wants one."""
    try:
        expression = _parsed(query)
    except ValueError:
        return
    if not _single(expression):
        yield "the query may give several figures, and KEDA takes one"
    if not named(query):
        yield "the query is about no metric of ours"


def elsewhere(query: str, namespace: str) -> Iterator[str]:
    """Selectors that are not about this namespace."""
    try:
        expression = _parsed(query)
    except ValueError:
        return
    for selector in _selectors(expression):
        told = [matcher.value for matcher in selector.matchers.matchers if matcher.name == "namespace"]
        if told != [namespace]:
            yield f"{selector.name} is not asked for in namespace {namespace}"


def _single(expression: Any) -> bool:
    match expression:
        case promql.ParenExpr() | promql.UnaryExpr():
            return _single(expression.expr)
        case promql.AggregateExpr():
            return expression.modifier is None and str(expression.op) in _ONE
        case promql.BinaryExpr():
            return _single(expression.lhs) and _single(expression.rhs)
        case promql.Call():
            return expression.func.name in ("scalar", "vector", "time")
        case _:
            return isinstance(expression, promql.NumberLiteral)


def _selectors(expression: Any) -> Iterator[Any]:
    if isinstance(expression, promql.VectorSelector):
        yield expression
    for part in ("vector_selector", "expr", "lhs", "rhs"):
        if hasattr(expression, part):
            yield from _selectors(getattr(expression, part))
    for argument in getattr(expression, "args", []):
        yield from _selectors(argument)

"""First step of loading: the YAML file as a tree of nodes that know their line.

Takes a path; returns the root, a mapping. What can't be read at all (missing, broken, empty, not a mapping)
ends here as a ConfigError with one fault; names given twice are reported and reading goes on.
"""

from __future__ import annotations

import re
from pathlib import Path as FilePath
from typing import TypeAlias

import yaml
from msgspec import Struct

from common.faults import ConfigError, Fault, Path, Report, dotted

Scalar: TypeAlias = str | int | float | bool | None
_TAG = "tag:yaml.org,2002:"
_SCALARS = {_TAG + name for name in ("null", "bool", "int", "float")}
_TEXTS = {_TAG + name for name in ("str", "timestamp", "value")}
_DEEPEST = 20
_ANOTHER = "--config or REDISPATCH_CONFIG names another file"


class Node(Struct):
    """A value of the file. `text` is a scalar as it is written. `loose`: it came from the environment, where
    everything is text. `hidden`: it may hold a secret and is not shown in a fault."""

    line: int
    value: Scalar | list[Node] | dict[str, Node]
    text: str = ""
    loose: bool = False
    hidden: bool = False

    @property
    def names(self) -> dict[str, Node]:
        """The children by name; empty for what is no mapping."""
        return self.value if isinstance(self.value, dict) else {}


def read(report: Report) -> Node:
    """The root of `report.file`."""
    try:
        loader = yaml.SafeLoader(FilePath(report.file).read_bytes())
        composed = loader.get_single_node()
    except OSError as fault:
        raise _single(report.file, f"can't be read: {fault.strerror or fault}; {_ANOTHER}") from None
    except RecursionError:
        raise _single(report.file, "is nested too deeply") from None
    except yaml.YAMLError as fault:
        raise _broken(report.file, fault) from None
    if composed is None:
        raise _single(report.file, "is empty; docs/example.yaml shows what may stand here")
    if not isinstance(composed, yaml.MappingNode):
        place = f"{report.file}:{composed.start_mark.line + 1}"
        raise _single(place, "expected sections such as `redis:` and `destinations:`")
    return _Reader(loader, report).node(composed, composed.start_mark.line + 1, ())


def _single(place: str, message: str) -> ConfigError:
    return ConfigError([Fault(place, message)])


def _broken(file: str, fault: yaml.YAMLError) -> ConfigError:
    mark = getattr(fault, "problem_mark", None)
    problem = getattr(fault, "problem", None) or getattr(fault, "reason", None) or "can't be read"
    problem = re.sub(
        r"(alias|anchor|tag handle) .*", r"\1", problem
    )  # a secret without quotes may look like one
    place = file if mark is None else f"{file}:{mark.line + 1}"
    return _single(place, f"is not YAML: {problem}" + (f", column {mark.column + 1}" if mark else ""))


class _Reader:
    """Turns PyYAML's nodes into ours and tells the report where they stand."""

    def __init__(self, loader: yaml.SafeLoader, report: Report) -> None:
        self.loader = loader
        self.report = report

    def node(self, composed: yaml.Node, line: int, path: Path) -> Node:
        self.report.stands(path, line)
        if len(path) > _DEEPEST:  # an anchor that holds itself ends here, too
            raise _single(f"{self.report.file}:{line} {dotted(path[:3])}...", "is nested too deeply")
        if isinstance(composed, yaml.MappingNode):
            return Node(line, self.mapping(composed, path))
        if isinstance(composed, yaml.SequenceNode):
            return Node(line, self.sequence(composed, path))
        return Node(line, self.scalar(composed, path), text=composed.value)

    def mapping(self, composed: yaml.MappingNode, path: Path) -> dict[str, Node]:
        self.twice(composed, path)
        try:
            self.loader.flatten_mapping(composed)  # `<<: *defaults`; what is merged comes first
        except (yaml.YAMLError, RecursionError):
            self.report.fault(path, "`<<` takes a mapping, or a list of them")
        return {
            key.value: self.node(value, key.start_mark.line + 1, (*path, key.value))
            for key, value in composed.value
            if isinstance(key, yaml.ScalarNode)
        }

    def twice(self, composed: yaml.MappingNode, path: Path) -> None:
        """Report names that are given twice, and names that are none."""
        first: dict[str, int] = {}
        for key, _ in composed.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self.report.stands((*path, "?"), line)
                self.report.fault((*path, "?"), "expected a name, got a list or a mapping")
            elif key.value in first:
                self.report.stands((*path, key.value), line)
                self.report.fault((*path, key.value), f"is there twice, first in line {first[key.value]}")
            else:
                first[key.value] = line

    def sequence(self, composed: yaml.SequenceNode, path: Path) -> list[Node]:
        items = enumerate(composed.value)
        return [self.node(item, item.start_mark.line + 1, (*path, index)) for index, item in items]

    def scalar(self, composed: yaml.Node, path: Path) -> Scalar:
        if composed.tag in _TEXTS:
            return str(composed.value)
        try:
            if composed.tag not in _SCALARS:
                raise ValueError
            value: Scalar = self.loader.construct_object(composed)
        except (ValueError, yaml.YAMLError):
            self.report.fault(path, "has a YAML tag that is not known here, or does not fit it")
            return None
        return value

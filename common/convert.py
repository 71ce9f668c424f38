"""Third step of loading: the tree becomes the structs of `settings.py`, by their types.

Goes on after a fault: where something is wrong its default, or something blank, stands in the result, so that
the checks after this one can look at the rest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path as FilePath

from msgspec import inspect

from common.document import Node
from common.faults import Path, Report, suggestion
from common.references import secret_file, secret_text
from common.units import Duration, Rate, Secret, Size

_UNITS: dict[type, type[Duration] | type[Size] | type[Rate]] = {Duration: Duration, Size: Size, Rate: Rate}
_TRUTH = {"true": True, "false": False}


def convert(kind: inspect.Type, node: Node, path: Path, report: Report) -> object:
    """The value of type `kind` that `node` stands for; reports what is wrong with it."""
    kind = _chosen(kind, node)
    if isinstance(kind, inspect.StructType):
        return _struct(kind, node, path, report)
    if isinstance(kind, inspect.ListType):
        return _list(kind, node, path, report)
    if isinstance(kind, inspect.DictType):
        return _dict(kind, node, path, report)
    try:
        return _scalar(kind, node, report)
    except ValueError as fault:
        report.fault(path, str(fault))
        return _blank(kind)


def _chosen(kind: inspect.Type, node: Node) -> inspect.Type:
    """Without descriptions; of a union the member that fits the node's shape."""
    if isinstance(kind, inspect.Metadata):
        return _chosen(kind.type, node)
    if not isinstance(kind, inspect.UnionType):
        return kind
    if node.value is None and kind.includes_none:
        return inspect.NoneType()
    members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
    lists = [member for member in members if isinstance(member, inspect.ListType)]
    return lists[0] if lists and isinstance(node.value, list) else members[0]


def _blank(kind: inspect.Type) -> object:
    if isinstance(kind, inspect.Metadata):
        return _blank(kind.type)
    if isinstance(kind, inspect.CustomType):
        return kind.cls("") if kind.cls is Secret else kind.cls()
    return [] if isinstance(kind, inspect.ListType) else ""


def _struct(kind: inspect.StructType, node: Node, path: Path, report: Report) -> object:
    given = _named(node, "a section with names, such as `name: value`", path, report)
    fields = {field.encode_name: field for field in kind.fields}
    values: dict[str, object] = {}
    for name, child in given.items():
        if name not in fields:
            report.fault((*path, name), f"is unknown{suggestion(name, fields)}{_all(fields)}")
            continue
        value = convert(fields[name].type, child, (*path, name), report)
        if not report.faulty((*path, name)) or fields[name].required:
            values[fields[name].name] = value
    for name, field in fields.items():
        if field.required and field.name not in values:
            report.fault((*path, name), "is missing")
            values[field.name] = _blank(field.type)
    return kind.cls(**values)


def _all(names: Iterable[str]) -> str:
    return f" ({', '.join(names)} are known)"


def _named(node: Node, expected: str, path: Path, report: Report) -> dict[str, Node]:
    if isinstance(node.value, dict):
        return node.value
    if node.value is not None:  # a section of which all is commented out is none
        report.fault(path, f"expected {expected}, got {_shape(node)}")
    return {}


def _dict(kind: inspect.DictType, node: Node, path: Path, report: Report) -> dict[str, object]:
    given = _named(node, "names with values, such as `name: value`", path, report)
    return {name: convert(kind.value_type, child, (*path, name), report) for name, child in given.items()}


def _list(kind: inspect.ListType, node: Node, path: Path, report: Report) -> list[object]:
    items = [] if node.value is None else node.value
    if not isinstance(items, list):
        report.fault(
            path, f"expected a list, such as `[a, b]` or lines that begin with `- `, got {_shape(node)}"
        )
        return []
    if len(items) < (kind.min_length or 0):
        report.fault(path, "is empty")
    return [convert(kind.item_type, item, (*path, index), report) for index, item in enumerate(items)]


def _scalar(kind: inspect.Type, node: Node, report: Report) -> object:
    """Raises ValueError with the fault's text."""
    if isinstance(kind, inspect.NoneType):
        return None
    if isinstance(kind, inspect.CustomType) and kind.cls is Secret:
        if not isinstance(node.value, str):
            raise ValueError("expected a text; put it in quotes")
        return _secret(node.value, report)
    try:
        if isinstance(node.value, list | dict) or node.value is None:
            raise ValueError(_expected(kind))
        return _plain(kind, node)
    except ValueError as fault:
        raise ValueError(f"{fault}{_got(node)}") from None


def _secret(text: str, report: Report) -> Secret:
    directory = FilePath(report.file).parent
    file = secret_file(text, directory)
    if file is not None:
        report.secret_files.add(file)
    return Secret(secret_text(text, directory))


def _plain(kind: inspect.Type, node: Node) -> object:
    if isinstance(kind, inspect.CustomType):
        return _UNITS[kind.cls].parse(node.value)
    if isinstance(kind, inspect.BoolType):
        return _bool(node)
    if isinstance(kind, inspect.IntType):
        return _int(kind, node)
    if isinstance(kind, inspect.LiteralType):
        return _literal(kind, node)
    if isinstance(kind, inspect.StrType):
        return _str(kind, node)
    raise TypeError(f"settings.py has a type that convert.py does not know: {kind}")


def _bool(node: Node) -> bool:
    value = _TRUTH.get(node.text.lower()) if node.loose else node.value
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _int(kind: inspect.IntType, node: Node) -> int:
    value = node.value
    if node.loose and re.fullmatch(r"-?[0-9]{1,18}", node.text):
        value = int(node.text)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("expected a whole number")
    if value < (kind.ge if kind.ge is not None else -math.inf):
        raise ValueError(f"expected a whole number of {kind.ge} or more")
    if value >= 2**53 or (kind.le is not None and value > kind.le):
        raise ValueError("expected a smaller number" if kind.le is None else f"expected {kind.le} or less")
    return value


def _literal(kind: inspect.LiteralType, node: Node) -> str:
    known = [str(value) for value in kind.values]
    if node.value not in known:
        raise ValueError(f"expected one of {', '.join(known)}{suggestion(node.text, known)}")
    return str(node.value)


def _str(kind: inspect.StrType, node: Node) -> str:
    if not isinstance(node.value, str):
        raise ValueError("expected a text; put it in quotes")
    if kind.pattern is not None and not re.fullmatch(kind.pattern.removesuffix("$"), node.value):
        raise ValueError("expected a name of letters, digits, _ and - (63 at most, no _ or - in front)")
    if not (kind.min_length or 0) <= len(node.value) <= (kind.max_length or math.inf):
        raise ValueError(f"expected {kind.min_length or 0} to {kind.max_length} characters")
    return node.value


def _expected(kind: inspect.Type) -> str:
    names = {inspect.BoolType: "true or false", inspect.IntType: "a whole number", inspect.StrType: "a text"}
    if isinstance(kind, inspect.CustomType):
        return f"expected a {kind.cls.__name__.lower()}"
    if isinstance(kind, inspect.LiteralType):
        return f"expected one of {', '.join(map(str, kind.values))}"
    return f"expected {names[type(kind)]}"


def _got(node: Node) -> str:
    """What was found instead, unless it may be a secret."""
    if node.hidden:
        return ", got ***"
    if node.value is None or isinstance(node.value, list | dict):
        return f", got {_shape(node)}"
    return f", got {node.text!r}" if len(node.text) <= 40 else f", got {node.text[:40]!r}..."


def _shape(node: Node) -> str:
    """Like `_got` where secrets may stand: never the text."""
    if node.value is None:
        return "nothing"
    if isinstance(node.value, list):
        return "a list"
    return "names with values" if isinstance(node.value, dict) else "a single value"

"""Part of loading: the file's `destinations`, each by the struct of its type.

Takes the tree's root and the known types; returns structs and adds to the report. Without types the names
that not every destination has are left out of the tree, before anything asks the environment for them.
"""

from __future__ import annotations

from typing import cast

from msgspec import inspect

from common.convert import convert
from common.document import Node
from common.faults import Path, Report, suggestion
from common.kinds import Kinds, UnknownKind
from common.settings import Destination

_COMMON = {field.encode_name for field in cast(inspect.StructType, inspect.type_info(Destination)).fields}


def leave_out_specifics(root: Node) -> None:
    """Take out of the tree what only some types have."""
    for node in _nodes(root):
        for name in [name for name in node.names if name not in _COMMON]:
            del node.names[name]


def take_out(root: Node, kinds: Kinds | None, report: Report) -> list[Destination]:
    """The destinations; they are no longer in the tree."""
    nodes = _nodes(root)
    if nodes:
        del root.names["destinations"]
    return [_destination(node, ("destinations", index), kinds, report) for index, node in enumerate(nodes)]


def _nodes(root: Node) -> list[Node]:
    node = root.names.get("destinations")
    return node.value if node is not None and isinstance(node.value, list) else []


def _destination(node: Node, path: Path, kinds: Kinds | None, report: Report) -> Destination:
    struct = Destination if kinds is None else _struct(node, path, kinds, report)
    if struct is None:
        leave_out_specifics(Node(0, {"destinations": Node(0, [node])}))
        struct = Destination
    return cast(Destination, convert(inspect.type_info(struct), node, path, report))


def _struct(node: Node, path: Path, kinds: Kinds, report: Report) -> type[Destination] | None:
    """None, and a fault, for a type that nobody knows."""
    told = node.names.get("type")
    if told is None or not isinstance(told.value, str):
        return None  # a fault of its own
    try:
        return kinds.settings(told.value)
    except UnknownKind as fault:
        known = kinds.names()
        because = str(fault) or f"is unknown{suggestion(told.value, known)} ({', '.join(known)} are known)"
        report.fault((*path, "type"), because)
        return None

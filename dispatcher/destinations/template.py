"""Templates: a text with `{{ host }}` in it, compiled once, rendered for one alert or a batch of them.

What kinds of destination take as `template`. The names are the fields of a payload's `data`; `alerts` (a list
of the same) and `count` always, and nothing else in a batch. Pure. Raises ValueError for a text that can't be
compiled, Unrenderable for alerts that it can't be rendered with; both name the line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from jinja2 import meta, nodes
from jinja2.exceptions import TemplateSyntaxError
from msgspec import structs

from common.faults import suggestion
from dispatcher.destinations.base import Delivery, Unrenderable
from dispatcher.destinations.payload import Data, payload
from dispatcher.destinations.sandbox import BUDGET, Budget, Sandbox

LONGEST = 2**22  # characters; more than the largest alert has
OF_ONE = Data.__struct_fields__
OF_ALL = ("alerts", "count")
_FILE = "<template>"  # what Jinja compiles it as


class Template:
    """A compiled text. Raises ValueError."""

    def __init__(self, text: str) -> None:
        sandbox = _sandbox()
        try:
            tree = sandbox.parse_bounded(text)
            unknown = meta.find_undeclared_variables(tree).difference(OF_ONE, OF_ALL)
            self._template = sandbox.from_string(tree)
        except TemplateSyntaxError as fault:
            raise ValueError(f"line {fault.lineno}: {(fault.message or '').rstrip('.')}") from None
        except (RecursionError, SyntaxError, MemoryError):  # Jinja's parser, Python's compiler, its parser
            raise ValueError("is nested too deeply") from None
        if unknown:
            raise ValueError("; ".join(_unknown(tree, name) for name in sorted(unknown)))

    def render(self, names: Mapping[str, object], most: int = LONGEST) -> str:
        """The text, at most so many characters; `names` are from `names_of`. Raises Unrenderable."""
        budget = Budget(most)
        pieces: list[str] = []
        length = 0
        try:
            for piece in self._template.generate({**names, BUDGET: budget}):
                pieces.append(piece)
                length += len(piece)
                if length > most:
                    raise Unrenderable(f"longer than {most} characters")
        except Unrenderable:
            raise
        except Exception as fault:  # an expression may raise whatever Python has
            raise Unrenderable(f"line {_line(fault)}: {str(fault) or type(fault).__name__}") from fault
        return "".join(pieces)


def templated(text: str) -> bool:
    """Whether a text that need not be a template is one."""
    return "{{" in text or "{%" in text


def names_of(deliveries: Sequence[Delivery]) -> dict[str, object]:
    """What a template knows of one delivery, or of a batch. Raises what `payload` raises."""
    alerts = [_plain(payload(delivery).data) for delivery in deliveries]
    of_one = alerts[0] if len(alerts) == 1 else {}
    return {**of_one, "alerts": alerts, "count": len(alerts)}


def _plain(data: Data) -> dict[str, object]:
    return structs.asdict(data) | {"status": str(data.status)}


@cache
def _sandbox() -> Sandbox:
    return Sandbox()


def _unknown(tree: nodes.Template, name: str) -> str:
    line = next((found.lineno for found in tree.find_all(nodes.Name) if found.name == name), 1)
    known = (*OF_ONE, *OF_ALL)
    hint = suggestion(name, known) or f" ({', '.join(known)} are known)"
    return f"line {line}: {name} is unknown{hint}"


def _line(fault: Exception) -> int:
    """Of the template, where it was raised."""
    line, trace = 1, fault.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line

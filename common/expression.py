"""JMESPath expressions of the configuration, compiled once.

Takes a text, returns what finds its value in a decoded JSON document. Raises ValueError with one line for
what is none; what an expression meets in a document may raise `Unfit`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions


class Unfit(ValueError):
    """The document is not what the expression is for, such as a number where a function wants a text."""


def compiled(text: str) -> Callable[[object], Any]:
    """A function from a document to the value, None where there is none. Raises ValueError."""
    try:
        expression = jmespath.compile(text)
    except JMESPathError as fault:
        raise ValueError(f"is no JMESPath expression: {_line(fault)}") from None
    unknown = _functions(expression.parsed) - Functions.FUNCTION_TABLE.keys()
    if unknown:
        raise ValueError(f"JMESPath has no function {min(unknown)}()")

    def find(document: object) -> Any:
        try:
            return expression.search(document)
        except JMESPathError as fault:
            raise Unfit(_line(fault)) from None

    return find


def _functions(node: Any) -> set[str]:
    """The names of all functions in a parsed expression; JMESPath looks for them only when it calls them."""
    own = {node["value"]} if node["type"] == "function_expression" else set()
    inner = (child for child in node.get("children", ()) if isinstance(child, dict))
    return own.union(*(_functions(child) for child in inner))


def _line(fault: Exception) -> str:
    lines = str(fault).strip().splitlines() or [type(fault).__name__]
    return lines[0].removesuffix(", for expression:").removeprefix("Invalid jmespath expression: ")

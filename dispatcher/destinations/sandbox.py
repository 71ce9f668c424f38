"""What a template may do: Jinja without attributes, macros and other files, and an end to its work.

Under `template.py`. An operator writes templates, senders write what is put into them: no alert may make one
run for long, grow without bound, or reach anything but data. Loops have no `range` and count their rounds,
each output counts its characters; what is beyond raises Jinja's SecurityError.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from jinja2 import StrictUndefined, Undefined, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateAssertionError, TemplateRuntimeError
from jinja2.filters import FILTERS
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROUNDS = 10_000  # of all loops together
_DIGITS = 15  # that a float has
BUDGET = "the budget"  # the name of it in a context: nothing that a template could write

_METHODS: dict[type, frozenset[str]] = {
    dict: frozenset(("get", "items", "keys", "values")),
    str: frozenset(("lower", "upper", "title", "strip", "split", "startswith", "endswith")),
    LoopContext: frozenset(("index", "index0", "revindex", "first", "last", "length")),
}
_KEPT = frozenset(
    (
        *("abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "int", "last"),
        *("length", "list", "lower", "map", "rejectattr", "selectattr", "sort", "title", "trim"),
        *("truncate", "unique", "upper", "urlencode"),
    )
)
_FILES = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends, nodes.Block)
_REFUSED = (nodes.Macro, nodes.CallBlock, *_FILES)


class Budget:
    """What one rendering may still do: `rounds` of loops, `characters` of output."""

    def __init__(self, characters: int) -> None:
        self.rounds = ROUNDS
        self.characters = self.most = characters

    def round(self) -> None:
        """One round of a loop. Raises SecurityError for one too many."""
        self.rounds -= 1
        if self.rounds < 0:
            raise SecurityError(f"its loops have more than {ROUNDS} rounds")

    def write(self, text: str) -> str:
        """The text, counted. Raises SecurityError for one too many."""
        self.characters -= len(text)
        if self.characters < 0:
            raise SecurityError(f"more than {self.most} characters")
        return text


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of every template."""

    intercepted_binops = frozenset(("*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_text)
        self.globals = {}
        self.filters = {name: FILTERS[name] for name in _KEPT} | _OWN

    def parse_bounded(self, source: str) -> nodes.Template:
        """The syntax tree, its loops counted. Raises TemplateSyntaxError for what isn't allowed, too."""
        tree = self.parse(source)
        for found in tree.find_all(_REFUSED):
            said = f"{type(found).__name__.lower()} is not available: a template is one text"
            raise TemplateAssertionError(said, found.lineno)
        for loop in tree.find_all(nodes.For):
            if loop.recursive:
                raise TemplateAssertionError("a loop can't be recursive", loop.lineno)
            loop.iter = nodes.Filter(loop.iter, _ROUNDS, [], [], None, None, lineno=loop.lineno)
        return tree

    def getattr(self, obj: Any, attribute: str) -> Any:
        """`labels.team`: an item; of methods only the harmless."""
        if attribute in _METHODS.get(type(obj), ()) or isinstance(obj, Undefined):
            return getattr(obj, attribute)
        return self.getitem(obj, attribute) if isinstance(obj, dict) else self.undefined(None, obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """`labels["team"]`: an item, never an attribute."""
        if isinstance(obj, Undefined):
            return obj[argument]
        try:
            return obj[argument]
        except KeyError:
            return self.undefined(f"there is no {argument!r}; `.get({argument!r}, '')` allows for that")
        except (LookupError, TypeError):
            return self.undefined(None, obj, argument)

    def is_safe_callable(self, obj: Any) -> bool:
        """The methods that `getattr` gives; what is undefined says so itself when it is called."""
        return isinstance(obj, Undefined) or getattr(obj, "__name__", "") in _METHODS.get(
            type(getattr(obj, "__self__", None)), ()
        )

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Numbers only: texts could be multiplied, or padded, beyond all bounds."""
        if operator == "**" or not all(isinstance(side, int | float) for side in (left, right)):
            raise SecurityError(f"{operator} is for numbers" if operator != "**" else "** is not available")
        return super().call_binop(context, operator, left, right)


@pass_context
def _text(context: Context, value: object) -> str:
    """What `{{ value }}` writes: nothing for what is absent; no Python."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float | Undefined):
        raise TemplateRuntimeError("no text; `| tojson`, `| join` or a loop makes one of a list or mapping")
    budget: Budget = context[BUDGET]
    return budget.write(str(value))


@pass_context
def _rounds(context: Context, items: Iterable[object]) -> Iterator[object]:
    budget: Budget = context[BUDGET]
    if isinstance(items, str):
        raise TemplateRuntimeError("a text is no list")
    for item in items:
        budget.round()
        yield item


@pass_context
def _replace(context: Context, text: str, old: str, new: str) -> str:
    _bound(context, len(text) + text.count(old) * max(0, len(new) - len(old)))
    return text.replace(old, new)


@pass_context
def _join(context: Context, items: Iterable[object], between: str = "") -> str:
    texts = [_text(context, item) for item in items]
    _bound(context, sum(map(len, texts)) + len(between) * len(texts))
    return between.join(texts)


def _bound(context: Context, size: int) -> None:
    budget: Budget = context[BUDGET]
    if size > budget.most:
        raise SecurityError(f"more than {budget.most} characters")


def _round(value: float, digits: int = 0) -> float:
    """Never raises ten to the power of what an alert says."""
    return round(float(value), max(-_DIGITS, min(_DIGITS, int(digits))))


def _one_line(value: object) -> str:
    """For headers and titles: what is no printable character becomes a space, runs of spaces one."""
    return " ".join("".join(c if c.isprintable() else " " for c in _plain(value)).split())


def _escape(value: object) -> str:
    return html.escape(_plain(value))


def _plain(value: object) -> str:
    return "" if value is None else str(value)


def _listed(value: object) -> object:
    """For the encoder: what `map` and `items()` give."""
    if isinstance(value, Undefined):
        str(value)  # raises
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON")


_encode = msgspec.json.Encoder(enc_hook=_listed).encode


def _json(value: object) -> str:
    return _encode(value).decode()


_ROUNDS = "rounds of a loop"
_OWN: dict[str, Callable[..., Any]] = {
    "tojson": _json,
    "replace": _replace,
    "join": _join,
    "round": _round,
    "oneline": _one_line,
    "escape": _escape,
    _ROUNDS: _rounds,
}

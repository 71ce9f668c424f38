"""Writes the documents that are drawn from the code: `python docs/generate.py`, `--check` to compare only.

A document is an entry of DOCUMENTS: its file in `docs/` and a function that returns its text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import NODEFAULT, inspect

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))  # run as a script, from anywhere

# ruff: noqa: E402  these are found through the line above
from common.policy import PRESETS
from common.references import PREFIX
from common.reload import RESTART
from common.settings import Destination, Settings
from common.units import Duration
from dispatcher.destinations import kinds
from docs import acl_page, command_page, protocol_pages

_HEAD = """\
# Settings

Drawn from `common/settings.py` by `docs/generate.py`. One YAML file: `--config`, else `REDISPATCH_CONFIG`,
else `redispatch.yaml`. `redispatch check` reports everything that is wrong with it at once. `example.yaml`
beside this page is an example.

- Durations are `250ms`, `10s`, `1m30s`, `76h`, `2d` or a number of seconds; sizes `8KiB`, `16MiB`, `1MB` or
  a number of bytes; rates `1/s`, `30/m`, `100/h`.
- `${NAME}` in any text is the environment's variable `NAME`; `$${` stands for a plain `${`.
- A secret may also be `file:/path` (relative to the configuration), whose content it is then. Secrets print
  as `***`.
- A setting outside of lists is overridden by the variable named beside it.
- A change of the file takes effect within seconds, but for what says "at a restart".
"""
_AT_RESTART = " (at a restart)"
_KEPT = frozenset(place for places in RESTART.values() for place in places)
_PRESETS = """\
## Presets of `retry`

| preset | attempts | base | cap | max_age | expected at |
|---|---|---|---|---|---|"""
_NAMES: dict[type, str] = {
    inspect.BoolType: "true or false",
    inspect.StrType: "text",
    inspect.NoneType: "",
}


def settings() -> str:
    """`settings.md`: a table per section."""
    schema = inspect.type_info(Settings)
    types = (line for name in kinds.OURS for line in _type(name))
    return "\n".join([_HEAD, *_sections(schema), *types, *_parts(), _PRESETS, *_presets(), ""])


def _type(name: str) -> Iterator[str]:
    """What one type of destination has beside what all have, and what it has differently."""
    struct = _structs(inspect.type_info(kinds.settings(name)))[0]
    common = {field.name: field.default for field in _structs(inspect.type_info(Destination))[0].fields}
    own = [field for field in struct.fields if field.name not in common]
    changed = [field for field in struct.fields if field.default != common.get(field.name, field.default)]
    if own or changed:
        text = struct.cls.__doc__ or ""
        yield from _table(f"destinations[]` of type `{name}", text, [*own, *changed], overridable=False)


def _parts() -> Iterator[str]:
    """The sections in what single types have; one that several share is told once."""
    common = {field.name for field in _structs(inspect.type_info(Destination))[0].fields}
    parts: dict[str, inspect.StructType] = {}
    for name in kinds.OURS:
        for field in _structs(inspect.type_info(kinds.settings(name)))[0].fields:
            inner = _structs(field.type)
            if inner and field.name not in common:
                parts.setdefault(f"destinations[].{field.encode_name}", inner[0])
    for name, struct in parts.items():
        yield from _section(struct, name)


def _sections(kind: inspect.Type, name: str = "") -> Iterator[str]:
    """The section's table, then those of the sections in it, in their order."""
    for struct in _structs(kind):
        if name:
            yield from _section(struct, name)
        for field in struct.fields:
            suffix = "[]" if isinstance(_bare(field.type), inspect.ListType) else ""
            inner = f"{name}.{field.encode_name}" if name else field.encode_name
            yield from _sections(field.type, inner + suffix)


def _section(struct: inspect.StructType, name: str) -> Iterator[str]:
    overridable = "[]" not in name and "." not in name
    return _table(name, struct.cls.__doc__ or "", struct.fields, overridable=overridable)


def _table(name: str, text: str, fields: Iterable[inspect.Field], *, overridable: bool) -> Iterator[str]:
    yield f"## `{name}`\n\n{text}\n"
    yield "| name | default | takes | meaning |" + (" variable |" if overridable else "")
    yield "|---|---|---|---|" + ("---|" if overridable else "")
    for field in fields:
        meaning = _meaning(field.type)
        meaning += _AT_RESTART if f"{name}.{field.name}" in _KEPT else ""
        cells = [f"`{field.encode_name}`", _default(field), _takes(field.type), meaning]
        if overridable:
            one = not (_structs(field.type) or isinstance(_bare(field.type), inspect.ListType))
            cells.append(f"`{PREFIX}{name}_{field.encode_name}`".upper() if one else "")
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _presets() -> Iterator[str]:
    for name, policy in PRESETS.items():
        times = ", ".join(_roughly(seconds) for seconds in policy.expected())
        base, cap = Duration(policy.base), Duration(policy.cap)
        yield f"| `{name}` | {policy.attempts} | {base} | {cap} | {policy.max_age} | {times} |"


def _roughly(seconds: float) -> str:
    unit, name = next((u, n) for u, n in ((3600, "h"), (60, "m"), (1, "s")) if seconds >= u or n == "s")
    return f"{seconds / unit:.3g}{name}"


def _structs(kind: inspect.Type) -> list[inspect.StructType]:
    kind = _bare(kind)
    if isinstance(kind, inspect.ListType):
        return _structs(kind.item_type)
    if isinstance(kind, inspect.UnionType):
        return [struct for member in kind.types for struct in _structs(member)]
    return [kind] if isinstance(kind, inspect.StructType) else []


def _bare(kind: inspect.Type) -> inspect.Type:
    return _bare(kind.type) if isinstance(kind, inspect.Metadata) else kind


def _default(field: inspect.Field) -> str:
    if field.required:
        return "required"
    if field.default is NODEFAULT or field.default is None or _structs(field.type):
        return ""
    text = str(field.default)
    return f"`{text.lower() if isinstance(field.default, bool) else text}`"


def _takes(kind: inspect.Type) -> str:
    kind = _bare(kind)
    if _structs(kind):
        return "list of sections" if isinstance(kind, inspect.ListType) else "section"
    if isinstance(kind, inspect.UnionType):
        return " or ".join(name for name in map(_takes, kind.types) if name)
    if isinstance(kind, inspect.ListType):
        each = _takes(kind.item_type)
        return f"list, each a {each}" if " " in each else f"list of {each}s"
    if isinstance(kind, inspect.DictType):
        return f"names, each with {_takes(kind.value_type)}"
    return _takes_one(kind)


def _takes_one(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.CustomType):
        return kind.cls.__name__.lower()
    if isinstance(kind, inspect.LiteralType):
        return " or ".join(f"`{value}`" for value in kind.values)
    if isinstance(kind, inspect.IntType):
        return f"whole number, {kind.ge} " + ("or more" if kind.le is None else f"to {kind.le}")
    if isinstance(kind, inspect.StrType) and kind.pattern:
        return "name"
    return _NAMES[type(kind)]


def _meaning(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.Metadata):
        return str((kind.extra_json_schema or {}).get("description", ""))
    members = kind.types if isinstance(kind, inspect.UnionType) else ()
    return next((text for text in map(_meaning, members) if text), "")


DOCUMENTS: dict[str, Callable[[], str]] = {
    "settings.md": settings,
    "states.md": protocol_pages.states,
    "keys.md": protocol_pages.keys,
    "scripts.md": protocol_pages.scripts,
    "metrics.md": protocol_pages.metrics,
    "commands.md": command_page.commands,
    "acl.md": acl_page.page,
}


def stale() -> list[str]:
    """The documents that differ from what the code says."""
    return [name for name, text in DOCUMENTS.items() if _there(DOCS / name) != text()]


def _there(file: Path) -> str | None:
    return file.read_text(encoding="utf-8") if file.exists() else None


def main(arguments: list[str]) -> int:
    """Write what is stale; with `--check` only name it, exit code 1."""
    names = stale()
    for name in names:
        if arguments != ["--check"]:
            (DOCS / name).write_text(DOCUMENTS[name](), encoding="utf-8")
        sys.stdout.write(f"docs/{name} {'is stale' if arguments == ['--check'] else 'written'}\n")
    return 1 if names and arguments == ["--check"] else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

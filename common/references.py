"""Second step of loading: what the environment says, `REDISPATCH_<SECTION>_<NAME>` and `${NAME}` in any text.

Takes the tree of `document.py` and changes it; a variable that is missing or unknown becomes a fault. The
`file:` references of secrets are read by `secret_text`, when `convert.py` knows that a text is a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path as FilePath

from msgspec import inspect

from common.document import Node
from common.faults import Path, Report, closest

PREFIX = "REDISPATCH_"
_REFERENCE = re.compile(r"\$(\$(?=\{)|\{([A-Za-z_][A-Za-z0-9_]*)\}|\{)")
# Kubernetes gives every pod variables for every Service; one named redispatch-ingest makes these.
_SERVICE_LINK = re.compile(r"SERVICE_(HOST|PORT)(_\w+)?|PORT_[0-9]+_\w+")


def override(root: Node, environ: Mapping[str, str], schema: inspect.StructType, report: Report) -> None:
    """Put `REDISPATCH_<SECTION>_<NAME>` in place of the file's settings. Other variables are left alone."""
    sections = {field.name: _names(field) for field in schema.fields}
    for variable in sorted(environ):
        section, _, name = variable.removeprefix(PREFIX).lower().partition("_")
        if not variable.startswith(PREFIX) or section not in sections or not name:
            continue
        if _service_link(variable.removeprefix(f"{PREFIX}{section.upper()}_"), environ[variable]):
            continue
        report.overridden((section, name), variable)
        if name in sections[section]:
            _put(root, section, name, environ[variable], report)
        else:
            report.fault((section, name), _unknown(section, name, sections[section]))


def _names(field: inspect.Field) -> tuple[str, ...]:
    kind = field.type.type if isinstance(field.type, inspect.Metadata) else field.type
    return tuple(inner.name for inner in kind.fields) if isinstance(kind, inspect.StructType) else ()


def _service_link(rest: str, value: str) -> bool:
    return bool(_SERVICE_LINK.fullmatch(rest)) or (rest == "PORT" and "://" in value)


def _unknown(section: str, name: str, known: tuple[str, ...]) -> str:
    if not known:
        return f"{section} can't be set by variables, since it is a list; use ${{NAME}} in the file"
    close = closest(name, known)
    if close:
        return f"is no setting; did you mean {PREFIX}{section.upper()}_{close.upper()}?"
    return f"is no setting; {section} has {', '.join(known)}"


def _put(root: Node, section: str, name: str, text: str, report: Report) -> None:
    there = root.names.get(section)
    if there is None or there.value is None:
        there = root.names[section] = Node(0, {})
        report.overridden((section,), report.place((section, name)))
    if isinstance(there.value, dict):  # else a fault of its own
        there.value[name] = Node(0, text, text=text, loose=True)


def expand(node: Node, environ: Mapping[str, str], path: Path, report: Report) -> None:
    """Put the environment's text for every `${NAME}` below `node`; `$${` stands for a plain `${`."""
    if node.loose:  # an override, taken as it is
        return
    if isinstance(node.value, dict):
        for name, child in node.value.items():
            expand(child, environ, (*path, name), report)
    elif isinstance(node.value, list):
        for index, child in enumerate(node.value):
            expand(child, environ, (*path, index), report)
    elif isinstance(node.value, str) and "${" in node.value:
        _expand_text(node, environ, path, report)


def _expand_text(node: Node, environ: Mapping[str, str], path: Path, report: Report) -> None:
    def text(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        if match[2] is None:
            report.fault(path, "a reference is written ${NAME}; $${ stands for a plain ${")
        elif match[2] not in environ:
            report.fault(path, f"the environment variable {match[2]} is not set")
        else:
            node.loose = node.hidden = True
            return environ[match[2]]
        return ""

    node.value = node.text = _REFERENCE.sub(text, str(node.value))


def secret_file(text: str, directory: FilePath) -> FilePath | None:
    """Where the secret is when the setting is a reference, `file:/path` (relative to the configuration)."""
    return directory / text.removeprefix("file:") if text.startswith("file:") else None


def secret_text(text: str, directory: FilePath) -> str:
    """The secret that a setting stands for: the content of the file when it is `file:/path` (relative to the
    configuration), without the newline at its end; else the text itself. Raises ValueError, which says what
    is wrong and does not show the secret."""
    file = secret_file(text, directory)
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as fault:
            raise ValueError(f"{file} can't be read: {fault.strerror or 'not a file'}") from None
        except ValueError:
            raise ValueError(f"{file} does not hold a text") from None
        if not text:
            raise ValueError(f"{file} is empty")
    if not text:
        raise ValueError("is empty")
    return text

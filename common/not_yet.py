"""What the schema knows and this version does not do: refused, since a setting without effect is a trap.

Takes the settings and what the file gave; reports `is not available yet`. Shrinks as things are built.
"""

from __future__ import annotations

from common.document import Node
from common.faults import Report
from common.settings import Settings

_SECTIONS = ("objects", "console")
_WITHOUT_EFFECT = {("ingest", "inline_limit")}
_SCHEMES = ("redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
_TEXT = "is not available yet"


def refuse(settings: Settings, root: Node, report: Report) -> None:
    """Report settings that are to come."""
    if "objects" in root.names:
        report.fault(("objects",), _TEXT)
    scheme = settings.redis.url.partition("://")[0]
    if scheme in _SCHEMES:
        report.fault(("redis", "url"), f"{scheme}:// {_TEXT}")


def is_to_come(section: str, name: str) -> bool:
    """Whether the documentation has to say so; `section` as in `destinations[]`."""
    return (section, name) in _WITHOUT_EFFECT or section in _SECTIONS

"""What the schema knows and this version does not do: refused, since a setting without effect is a trap.

Takes the settings; reports `is not available yet`. Shrinks as things are built.
"""

from __future__ import annotations

from common.faults import Report
from common.settings import Settings

_SCHEMES = ("redis+cluster", "rediss+cluster")
_TEXT = "is not available yet"


def refuse(settings: Settings, report: Report) -> None:
    """Report settings that are to come."""
    scheme = settings.redis.url.partition("://")[0]
    if scheme in _SCHEMES:
        report.fault(("redis", "url"), f"{scheme}:// {_TEXT}")

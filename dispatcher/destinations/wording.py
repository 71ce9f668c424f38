"""What slack, pagerduty and apprise say of an alert alike: severity, state, and texts that fit.

Pure. No text fails here: what is too long ends in an ellipsis, what UTF-8 can't hold becomes `?`.
"""

from __future__ import annotations

from common.alert import Alert, Status

SEVERITIES = ("info", "warning", "error", "critical")  # rising
NAMELESS = "(no name)"  # of blanks alone

_STATE = 64  # characters of a severity of the sender's own


def severity(alert: Alert) -> str:
    """One of SEVERITIES; others, and none, rank as `warning`."""
    return alert.severity if alert.severity in SEVERITIES else "warning"


def state(alert: Alert) -> str:
    """`RESOLVED`, or the severity as it was given, or `FIRING` when there is none."""
    if alert.status is Status.RESOLVED:
        return "RESOLVED"
    return line(alert.severity or "", _STATE).upper() or "FIRING"


def subject(alert: Alert, most: int) -> str:
    """`name on host`, or `name` when there is no host."""
    return line(f"{alert.name} on {alert.host}" if alert.host.strip() else alert.name, most) or NAMELESS


def cut(text: str, most: int) -> str:
    """Up to so many UTF-16 units, the last of them `…` when something is missing.

    Services say "characters" and leave open what they count; no way of counting gives more than this one.
    """
    plain = text[: most + 1].encode(errors="replace").decode()
    units = plain.encode("utf-16-le")
    if len(units) <= 2 * most:
        return plain
    return units[: 2 * (most - 1)].decode("utf-16-le", errors="ignore") + "…"


def line(text: str, most: int) -> str:
    """The same on one line, from the first `4 * most` characters."""
    return cut(" ".join(text[: 4 * most].split()), most)

"""The one line that the log has for a request that was refused. Beside the way.

Takes what a Site says of a problem; says which sender it was by its token's name. Storms are kept short
(`common/storm.py`). Raises nothing.
"""

from __future__ import annotations

from common import trace
from common.http import PROBES, Problem, Request
from common.log import Log
from common.storm import WARNING, storms
from ingest.senders import Senders

log = Log("ingest")


def refuse(request: Request, route: str, problem: Problem, seconds: float, senders: Senders) -> None:
    """Write it, unless a probe was told that nothing is ready."""
    if route in PROBES:
        return
    sender = _sender(request, senders)
    names = {"route": route, "code": problem.status, "sender": sender}
    if not storms.kind("refused", WARNING, **names).admits():
        return
    context = trace.taken(request.headers)
    log.warning(
        "refused",
        **names,
        peer=request.remote,
        method=request.method,
        trace=None if context is None else trace.trace_id(context),
        error=problem.detail,
        items=_items(problem),
        seconds=round(seconds, 6),
    )


def _sender(request: Request, senders: Senders) -> str | None:
    """The name of whose token it is; None without one that is known."""
    try:
        return senders.of(request.headers).name
    except Problem:
        return None


def _items(problem: Problem) -> int | None:
    """How many were refused, where that is known."""
    told = problem.more.get("rejected", problem.more.get("errors"))
    return len(told) if isinstance(told, list) else problem.items

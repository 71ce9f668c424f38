"""What the console counts: few things, every label value there from the start."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge

from common.http import OTHER
from common.trouble import Kind

ACTIONS = ("replay", "discard", "pause", "resume", "retire", "send", "stop")
SIGN_INS = ("let_in", "unknown", "too_many")


class Metrics:
    """Those of one process. `registry` is what `/metrics` shows."""

    def __init__(self, routes: Iterable[str]) -> None:
        self.registry = CollectorRegistry()
        requests = self._counter("console_requests", "Requests answered", "route")
        self._requests = {name: requests.labels(name) for name in (*routes, OTHER)}
        done = self._counter("console_actions", "What was done here", "action")
        self.actions = {action: done.labels(action) for action in ACTIONS}
        tried = self._counter("console_sign_ins", "Tokens that were shown", "result")
        self.sign_ins = {result: tried.labels(result) for result in SIGN_INS}
        faults = self._counter("redis_errors", "Errors of Redis by kind", "kind")
        self.faults = {kind: faults.labels(kind) for kind in Kind}
        self.viewers = self._gauge("console_viewers", "Pages that are being watched")
        self.jobs = self._gauge("console_jobs", "Replays and discards under way")
        self.reload_failed = self._gauge(
            "config_reload_failed", "1: the configuration's file can't be used, and the one before is"
        )

    def request(self, route: str, code: int, seconds: float) -> None:
        """One was answered."""
        self._requests[route].inc()

    def troubled(self, kind: Kind) -> None:
        """Redis did not do what it was asked."""
        self.faults[kind].inc()

    def _counter(self, name: str, text: str, label: str) -> Counter:
        return Counter(f"redispatch_{name}", text, [label], registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"redispatch_{name}", text, registry=self.registry)

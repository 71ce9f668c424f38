"""The queue's figures, once a second, from one script per destination; the same on every replica.

Takes the lanes' destinations; sets gauges. Not `lag`: it is null in normal life.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from redis import exceptions as errors
from redis.asyncio import Redis

from common.log import Log
from common.snapshot import Snapshot, snapshot
from common.trouble import kind_of
from dispatcher.metrics import Metrics

EVERY = 1.0  # seconds
GATES = ("gone", "paused", "breaker", "throttled")  # in their order of precedence

log = Log("dispatcher")


class _Lost(Collector):
    """A counter that Redis counts: its value is what the ledger has booked."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.of: dict[str, int] = {}
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at a scrape."""
        text = "Entries that vanished, as booked in the ledger"
        family = CounterMetricFamily("redispatch_lost_entries", text, labels=["destination"])
        for name, lost in self.of.items():
            family.add_metric([name], lost)
        yield family


class Queues:
    """Gauges of all destinations."""

    def __init__(self, registry: CollectorRegistry, names: Iterable[str], limit: int) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"redispatch_{name}", text, ["destination", *labels], registry=registry)

        self._depth = gauge("queue_depth", "Deliveries waiting, in flight or retrying")
        self._limit = gauge("queue_limit", "Cap of the depth")
        self._in_flight = gauge("in_flight", "Deliveries pending under a consumer")
        self._retrying = gauge("retrying", "Deliveries that wait for their next attempt")
        self._overdue = gauge("retry_overdue_seconds", "How long the first retry has been due")
        self._age = gauge(
            "oldest_delivery_age_seconds", "Since the oldest entry was last put into the stream"
        )
        self._dead = gauge("dead_letters", "Dead letters")
        self._consumers = gauge("consumers", "Consumers in the group")
        self._gate = gauge("gate_closed", "1 when nothing is read, by reason", "reason")
        self._unaccounted = gauge("unaccounted_deliveries", "What the ledger can't explain; must be 0")
        self._lost = _Lost(registry)
        for name in names:
            self._limit.labels(name).set(limit)
            self._lost.of[name] = 0
            for reason in GATES:
                self._gate.labels(name, reason).set(0)

    def show(self, seen: Snapshot) -> None:
        """Set what one snapshot says."""
        name = seen.destination
        overdue = 0 if seen.next_due is None else max(0, seen.now - seen.next_due)
        age = 0 if seen.oldest_at is None else max(0, seen.now - seen.oldest_at)
        self._depth.labels(name).set(seen.depth)
        self._in_flight.labels(name).set(seen.in_flight)
        self._retrying.labels(name).set(seen.retrying)
        self._overdue.labels(name).set(overdue / 1000)
        self._age.labels(name).set(age / 1000)
        self._dead.labels(name).set(seen.dead_letters)
        self._consumers.labels(name).set(seen.consumers)
        self._unaccounted.labels(name).set(seen.unaccounted)
        self._lost.of[name] = seen.ledger.lost
        for reason in GATES:
            self._gate.labels(name, reason).set(seen.gate.get("state") == reason)


async def measure(redis: Redis, namespace: str, names: list[str], queues: Queues, metrics: Metrics) -> None:
    """Until cancelled."""
    warned = False
    while True:
        try:
            seen = [await snapshot(redis, namespace, name) for name in names]
        except errors.RedisError as fault:
            metrics.errors[kind_of(fault)].inc()
        else:
            for one in seen:
                queues.show(one)
            second = any(one.groups > 1 for one in seen)
            metrics.unsafe["second_group"].set(second)
            if second and not warned:
                log.error("redis_unsafe", kind="second_group", streams=_with_two(seen))
            warned = second
        await asyncio.sleep(EVERY)


def _with_two(seen: list[Snapshot]) -> str:
    return " ".join(one.destination for one in seen if one.groups > 1)

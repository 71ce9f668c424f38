"""The queue's figures, once a second, from one script per destination; the same on every replica.

Takes the configuration's destinations, and those that left it but are still in Redis; sets gauges. Not `lag`:
it is null in normal life.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import count

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from redis import exceptions as errors
from redis.asyncio import Redis

from common.log import Log
from common.outcomes import Reason
from common.settings import Settings
from common.snapshot import Snapshot, destinations, snapshot
from common.trouble import kind_of
from dispatcher.metrics import Metrics

EVERY = 1.0  # seconds
LOOK = 5  # rounds until it is asked again which destinations Redis knows
MOST_REMOVED = 100  # of which those that left the configuration are looked at
GATES = ("gone", "paused", "breaker", "throttled")  # in their order of precedence

log = Log("dispatcher")


class _Booked(Collector):
    """Counters that Redis counts: their values are what the ledger has booked.

    A destination is shown once it was looked at: 0 before that would let `increase` see all of it come.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.of: dict[str, Snapshot] = {}
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at a scrape."""
        text = "Entries that vanished, as booked in the ledger"
        lost = CounterMetricFamily("redispatch_lost_entries", text, labels=["destination"])
        text = "Deliveries given up, by reason, as booked in the ledger"
        dead = CounterMetricFamily("redispatch_dead", text, labels=["destination", "reason"])
        for name, seen in self.of.items():
            lost.add_metric([name], seen.ledger.lost)
            for reason in Reason:
                dead.add_metric([name, reason], seen.died.get(reason, 0))
        yield from (lost, dead)


class Queues:
    """Gauges of the destinations in the configuration, and of those that left it while something is left."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"redispatch_{name}", text, ["destination", *labels], registry=registry)

        self._limit = gauge("queue_limit", "Cap of the depth")
        self._dead_limit = gauge("dead_letters_limit", "Cap of the dead letters")
        self._gate = gauge("gate_closed", "1 when nothing is read, by reason", "reason")
        self._removed = gauge("destination_removed", "1: not in the configuration, and something is left")
        self._of = {
            "depth": gauge("queue_depth", "Deliveries waiting, in flight or retrying"),
            "in_flight": gauge("in_flight", "Deliveries pending under a consumer"),
            "retrying": gauge("retrying", "Deliveries that wait for their next attempt"),
            "overdue": gauge("retry_overdue_seconds", "How long the first retry has been due"),
            "age": gauge(
                "oldest_delivery_age_seconds", "Since the oldest entry was last put into the stream"
            ),
            "dead": gauge("dead_letters", "Dead letters"),
            "consumers": gauge("consumers", "Consumers in the group"),
            "unaccounted": gauge("unaccounted_deliveries", "What the ledger can't explain; must be 0"),
        }
        self._booked = _Booked(registry)
        self.configured: tuple[str, ...] = ()
        self._shown: set[str] = set()

    def configure(self, settings: Settings) -> None:
        """These are the destinations from now on."""
        self.configured = tuple(destination.name for destination in settings.destinations)
        for name in self.configured:
            self._begin(name)
            self._limit.labels(name).set(settings.queue.max_depth)
            self._dead_limit.labels(name).set(settings.queue.max_dead)
            self._removed.labels(name).set(0)

    def left(self, known: Iterable[str]) -> list[str]:
        """Which of those that are `known` in Redis, or shown here, left the configuration; not too many."""
        return sorted({*known, *self._shown} - {*self.configured})[:MOST_REMOVED]

    def show(self, seen: Snapshot) -> None:
        """Set what one snapshot says."""
        name = seen.destination
        if name not in self.configured and not (seen.depth or seen.dead_letters or seen.unaccounted):
            self._forget(name)
            return
        if name not in self.configured:
            self._begin(name)
            self._removed.labels(name).set(1)
        for what, value in _figures(seen):
            self._of[what].labels(name).set(value)
        self._booked.of[name] = seen
        for reason in GATES:
            self._gate.labels(name, reason).set(seen.gate.get("state") == reason)

    def _begin(self, name: str) -> None:
        if name not in self._shown:
            self._shown.add(name)
            for reason in GATES:
                self._gate.labels(name, reason).set(0)

    def _forget(self, name: str) -> None:
        if name in self._shown:
            self._shown.discard(name)
            self._booked.of.pop(name, None)
            for gauge in (self._limit, self._dead_limit, self._removed, *self._of.values()):
                gauge.remove(name)
            for reason in GATES:
                self._gate.remove(name, reason)


def _figures(seen: Snapshot) -> Iterator[tuple[str, float]]:
    overdue = 0 if seen.next_due is None else max(0, seen.now - seen.next_due)
    age = 0 if seen.oldest_at is None else max(0, seen.now - seen.oldest_at)
    yield "depth", seen.depth
    yield "in_flight", seen.in_flight
    yield "retrying", seen.retrying
    yield "overdue", overdue / 1000
    yield "age", age / 1000
    yield "dead", seen.dead_letters
    yield "consumers", seen.consumers
    yield "unaccounted", seen.unaccounted


async def measure(redis: Redis, namespace: str, queues: Queues, metrics: Metrics) -> None:
    """Until cancelled."""
    warned = False
    known: list[str] = []
    for n in count():
        try:
            if n % LOOK == 0:
                known = await destinations(redis, namespace)
        except errors.RedisError as fault:
            metrics.errors[kind_of(fault)].inc()
        seen = await _seen(redis, namespace, [*queues.configured, *queues.left(known)], metrics)
        if seen:
            for one in seen:
                queues.show(one)
            second = any(one.groups > 1 for one in seen)
            metrics.unsafe["second_group"].set(second)
            if second and not warned:
                log.error("redis_unsafe", kind="second_group", streams=_with_two(seen))
            warned = second
        await asyncio.sleep(EVERY)


async def _seen(redis: Redis, namespace: str, names: Iterable[str], metrics: Metrics) -> list[Snapshot]:
    """Those of the destinations whose server answers; in a Cluster it is not the same for all."""
    seen: list[Snapshot] = []
    for name in names:
        try:
            seen.append(await snapshot(redis, namespace, name))
        except errors.RedisError as fault:
            metrics.errors[kind_of(fault)].inc()
    return seen


def _with_two(seen: list[Snapshot]) -> str:
    return " ".join(one.destination for one in seen if one.groups > 1)

"""Puts alerts into the streams of destinations, once per key: the append script, for whoever has alerts.

It is the last step of ingest, and of what a destination makes of an alert. Takes alerts and, per destination,
which of them it gets; returns what the script says of each copy. What is above `ingest.inline_limit` goes to
the object store first, and a reference in its place. Raises what redis-py raises, NotDurable, and Away (the
object store). Whatever was raised: a repeat finds what is there as a duplicate, and adds the rest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

from redis import exceptions as errors

from common import canary, keys, reference
from common.alert import Alert, encode
from common.log import Log
from common.objects import Objects
from common.policy import record_ttl, retry_policy
from common.reference import Reference
from common.scripts import Argument, Call, Script
from common.settings import Settings
from common.stored import Away
from common.wire import Command, Wire

QUEUED, DEAD, NO_ROOM, DUPLICATE, DUPLICATE_DEAD, CONFLICT = 1, 2, 3, 4, 5, 10  # CONFLICT is added to others

AT_ONCE = 16  # objects being written
LEASE = (
    600.0  # seconds from the first object to the script; after an hour the sweeper takes what is not listed
)

_MADE_ANEW = frozenset({"reading", "prometheus", "alertmanager", "grafana", "collectd"})
_script = Script("common", "append")
_Item: TypeAlias = tuple[str, str, bytes]  # key, hash of the content, stored form
_Kept: TypeAlias = dict[tuple[str, int], Reference]  # by destination and the alert's place

log = Log("append")


class NotDurable(errors.RedisError):
    """Redis has it, but not yet where `ingest.durability` wants it; the text says how far it is."""


class Store:
    """Appends over one wire; `cluster`: one call per destination (its slot) instead of one for all."""

    def __init__(
        self, wire: Wire, settings: Settings, *, cluster: bool, objects: Objects | None = None
    ) -> None:
        self._wire = wire
        self._namespace = settings.redis.namespace
        self._ingest = settings.ingest
        self._limit = int(settings.ingest.inline_limit)
        self._objects = objects or Objects(settings.objects.url, settings.redis.namespace)
        self._cluster = cluster
        self._at = {to.name: keys.Destination(self._namespace, to.name) for to in settings.destinations}
        self._caps: dict[str, list[Argument]] = {
            to.name: [
                settings.queue.max_depth,
                settings.queue.max_dead,
                record_ttl(retry_policy(to), settings.dedupe.remember).ms,
            ]
            for to in settings.destinations
        }

    async def append(
        self,
        alerts: Sequence[Alert],
        places: Mapping[str, Sequence[int]],
        traces: Sequence[str | None] = (),
    ) -> list[dict[str, int]]:
        """Per alert a code for each of its destinations.

        `places` has the indexes of a destination's alerts; all names are of the settings' destinations.
        `traces` has each alert's context (`trace.py`), or is empty when none has one.
        """
        codes: list[dict[str, int]] = [{} for _ in alerts]
        if not places:
            return codes
        items = [(alert.key, content(alert), encode(alert)) for alert in alerts]
        limit = self._limit
        large = {place for place, item in enumerate(items) if len(item[2]) > limit}
        kept = await self._keep(alerts, items, places, large) if large else {}
        groups = [[name] for name in places] if self._cluster else [list(places)]
        traced = {place: trace for place, trace in enumerate(traces) if trace}
        calls = [self._call(group, places, items, kept, traced) for group in groups]
        replies = await self._send(list(places), calls)
        for group, reply in zip(groups, replies, strict=True):
            told = iter(reply)
            for name in group:
                for place in places[name]:
                    codes[place][name] = next(told)
        if kept:
            await self._release(
                {each: ref for each, ref in kept.items() if codes[each[1]][each[0]] not in (QUEUED, DEAD)}
            )
        return codes

    async def _keep(
        self,
        alerts: Sequence[Alert],
        items: list[_Item],
        places: Mapping[str, Sequence[int]],
        large: set[int],
    ) -> _Kept:
        """Write an object for each copy of the large ones; all of them or, as far as possible, none."""
        free = asyncio.Semaphore(AT_ONCE)

        async def put(name: str, place: int) -> Reference:
            async with free:
                return await self._objects.put(name, alerts[place], items[place][2])

        began = time.monotonic()
        copies = [(name, place) for name, wanted in places.items() for place in wanted if place in large]
        told = await asyncio.gather(*(put(*copy) for copy in copies), return_exceptions=True)
        faults = [each for each in told if isinstance(each, BaseException)]
        kept = {copy: each for copy, each in zip(copies, told, strict=True) if isinstance(each, Reference)}
        if faults:
            await self._release(kept)
            raise faults[0]
        if time.monotonic() - began > LEASE:
            raise Away("it took so long that the sweeper might take it for left behind")
        return kept

    async def _release(self, unused: _Kept) -> None:
        """Remove objects that no entry refers to."""
        by_name: dict[str, list[str]] = {}
        for (name, _), ref in unused.items():
            by_name.setdefault(name, []).append(ref.object)
        try:
            for name, objects in by_name.items():
                await self._objects.delete(name, objects)
        except Away as fault:
            log.info("objects_left", count=len(unused), error=fault)  # the sweeper finds them

    def _call(
        self,
        names: list[str],
        places: Mapping[str, Sequence[int]],
        items: list[_Item],
        kept: _Kept,
        traced: Mapping[int, str],
    ) -> Call:
        wanted = sorted({place for name in names for place in places[name]})
        referring: list[tuple[str, int]] = []
        if kept:
            referring = [(name, place) for name in names for place in places[name] if (name, place) in kept]
            wanted = sorted(set(wanted) - {place for _, place in referring})
        order: dict[int | tuple[str, int], int] = {place: n for n, place in enumerate(wanted, 1)}
        touched: list[str] = []
        args: list[Argument] = [
            len(wanted) + len(referring),
            len(names),
            int(self._ingest.durability != "written"),
            len(referring),
            0,
        ]
        for place in wanted:
            args += items[place]
        for copy in referring:
            order[copy] = len(order) + 1
            args += (*items[copy[1]][:2], reference.encode(kept[copy]))
        args += [kept[copy].object for copy in referring]
        if traced:
            told = _told(order, traced)
            args[4] = len(told) // 2
            args += told
        for name in names:
            at = self._at[name]
            touched += (at.stream, at.retry, at.dead, at.ledger, at.objects)
            touched += [at.record(items[place][0]) for place in places[name]]
            args += (*self._caps[name], len(places[name]))
            args += [order.get(place) or order[name, place] for place in places[name]]
        return touched, args

    async def _send(self, names: list[str], calls: list[Call]) -> list[Any]:
        """One reply per call; when it returns, what they did is as safe as `ingest.durability` wants it."""
        ingest, patience = self._ingest, self._ingest.durability_timeout.ms
        known: Command = ("SADD", keys.destinations(self._namespace), *names)
        after: dict[str, Command] = {
            "replicated": ("WAIT", ingest.replicas, patience),
            "fsynced": ("WAITAOF", 1, 0, patience),
        }
        replies, safe = await _script.several(
            self._wire,
            calls,
            beside=[] if canary.is_one(names[0]) else [known],
            after=after.get(ingest.durability),
        )
        if ingest.durability == "replicated" and min(safe) < ingest.replicas:
            raise NotDurable(f"only {min(safe)} of {ingest.replicas} replicas have it so far")
        if ingest.durability == "fsynced" and min(safe)[0] < 1:
            raise NotDurable("it is not on disk so far")
        return replies


def _told(order: Mapping[int | tuple[str, int], int], traced: Mapping[int, str]) -> list[Argument]:
    """The traces of those that are in a call, each behind its alert's place there."""
    told: list[Argument] = []
    for each, nth in order.items():
        trace = traced.get(each if isinstance(each, int) else each[1])
        if trace is not None:
            told += (nth, trace)
    return told


def content(alert: Alert) -> str:
    """Hash of what makes an alert the same: all but value, times and annotations.

    Where a summary is made from the value, and a URL from the sender's own, they differ each time.
    """
    summary, url = (None, None) if alert.source in _MADE_ANEW else (alert.summary, alert.url)
    told = (alert.incident, alert.host, alert.name, alert.status, alert.severity, summary, url)
    labels = sorted(alert.labels.items()) if alert.labels else None
    return blake2b(encode((told, labels)), digest_size=8).hexdigest()

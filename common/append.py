"""Puts alerts into the streams of destinations, once per key: the append script, for whoever has alerts.

It is the last step of ingest, and of what a destination makes of an alert. Takes alerts and, per destination,
which of them it gets; returns what the script says of each copy. Raises what redis-py raises, and NotDurable.
Whatever was raised: a repeat finds what is there as a duplicate, and adds the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

from redis import exceptions as errors

from common import keys
from common.alert import Alert, encode
from common.policy import record_ttl, retry_policy
from common.scripts import Argument, Script
from common.settings import Settings
from common.wire import Command, Wire

QUEUED, DEAD, NO_ROOM, DUPLICATE, DUPLICATE_DEAD, CONFLICT = 1, 2, 3, 4, 5, 10  # CONFLICT is added to others

_MADE_ANEW = frozenset({"reading", "prometheus", "alertmanager", "grafana", "collectd"})
_script = Script("common", "append")
_Call: TypeAlias = tuple[list[str], list[Argument]]  # keys and arguments
_Item: TypeAlias = tuple[str, str, bytes]  # key, hash of the content, stored form


class NotDurable(errors.RedisError):
    """Redis has it, but not yet where `ingest.durability` wants it; the text says how far it is."""


class Store:
    """Appends over one connection; `cluster`: one call per destination instead of one for all."""

    def __init__(self, wire: Wire, settings: Settings, *, cluster: bool) -> None:
        self._wire = wire
        self._namespace = settings.redis.namespace
        self._ingest = settings.ingest
        self._cluster = cluster
        self._caps: dict[str, list[Argument]] = {
            to.name: [
                settings.queue.max_depth,
                settings.queue.max_dead,
                record_ttl(retry_policy(to), settings.dedupe.remember).ms,
            ]
            for to in settings.destinations
        }

    async def append(
        self, alerts: Sequence[Alert], places: Mapping[str, Sequence[int]]
    ) -> list[dict[str, int]]:
        """Per alert a code for each of its destinations.

        `places` has the indexes of a destination's alerts; all names are of the settings' destinations.
        """
        codes: list[dict[str, int]] = [{} for _ in alerts]
        if not places:
            return codes
        items = [(alert.key, content(alert), encode(alert)) for alert in alerts]
        groups = [[name] for name in places] if self._cluster else [list(places)]
        replies = await self._run(list(places), [self._call(group, places, items) for group in groups])
        for group, reply in zip(groups, replies, strict=True):
            told = iter(reply)
            for name in group:
                for place in places[name]:
                    codes[place][name] = next(told)
        return codes

    def _call(self, names: list[str], places: Mapping[str, Sequence[int]], items: list[_Item]) -> _Call:
        wanted = sorted({place for name in names for place in places[name]})
        order = {place: n for n, place in enumerate(wanted, 1)}
        touched: list[str] = []
        args: list[Argument] = [len(wanted), len(names), int(self._ingest.durability != "written")]
        for place in wanted:
            args += items[place]
        for name in names:
            at = keys.Destination(self._namespace, name)
            touched += (at.stream, at.retry, at.dead, at.ledger)
            touched += [at.record(items[place][0]) for place in places[name]]
            args += (*self._caps[name], len(places[name]), *(order[place] for place in places[name]))
        return touched, args

    async def _run(self, names: list[str], calls: list[_Call]) -> list[Any]:
        try:
            return await self._send(names, calls)
        except errors.NoScriptError:
            await _script.load(self._wire)
            return await self._send(names, calls)  # what did go in is a duplicate now

    async def _send(self, names: list[str], calls: list[_Call]) -> list[Any]:
        pipeline: list[Command] = [("SADD", keys.destinations(self._namespace), *names)]
        for touched, args in calls:
            pipeline.append(("EVALSHA", _script.digest, len(touched), *touched, *args))
        ingest = self._ingest
        if ingest.durability == "replicated":
            pipeline.append(("WAIT", ingest.replicas, ingest.durability_timeout.ms))
        elif ingest.durability == "fsynced":
            pipeline.append(("WAITAOF", 1, 0, ingest.durability_timeout.ms))
        replies = await self._wire.pipeline(pipeline)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        if ingest.durability == "replicated" and replies[-1] < ingest.replicas:
            raise NotDurable(f"only {replies[-1]} of {ingest.replicas} replicas have it so far")
        if ingest.durability == "fsynced" and replies[-1][0] < 1:
            raise NotDurable("it is not on disk so far")
        return replies[1 : 1 + len(calls)]


def content(alert: Alert) -> str:
    """Hash of what makes an alert the same: all but value, times and annotations.

    Where a summary is made from the value, and a URL from the sender's own, they differ each time.
    """
    summary, url = (None, None) if alert.source in _MADE_ANEW else (alert.summary, alert.url)
    told = (alert.incident, alert.host, alert.name, alert.status, alert.severity, summary, url)
    labels = sorted(alert.labels.items()) if alert.labels else None
    return blake2b(encode((told, labels)), digest_size=8).hexdigest()

"""One function per Redis key: what it holds, who writes it, who reads it, how long it lives.

All keys of a destination share the hash tag `{<namespace>:<destination>}`, so that one script sees all of
them in one Cluster slot. `docs/keys.md` is drawn from this page: a docstring begins with the key's type and
ends with the scripts and commands that write and read it, and with its TTL.
"""

from __future__ import annotations

import zlib

GROUP = "dispatchers"


def tag(namespace: str, destination: str) -> str:
    """Common beginning of a destination's keys. Its canary, `<destination>/canary`, is in the same slot."""
    name, _, way = destination.partition("/")
    return f"{{{namespace}:{name}}}:{way}:" if way else f"{{{namespace}:{name}}}:"


def stream(namespace: str, destination: str) -> str:
    """stream: waiting and in-flight deliveries, in the group `dispatchers`; fields `key alert attempt
    first_at`, and `object`, `replay_of`, `force`, `trace`, `throttled`, `alone` when there are any.

    Written by append, take, settle, reclaim, find, keep_alive, reap, replay, retire; read by claim, snapshot,
    accept, pause, resume, stats, ledger. No TTL.
    """
    return tag(namespace, destination) + "stream"


def retry(namespace: str, destination: str) -> str:
    """sorted set: deliveries that wait, by due time in ms; a member is the id of the entry it came from, a
    space and the fields of the entry to come.

    Written by settle, take, retire; read by append, reclaim, snapshot, accept, pause, resume, replay,
    stats, ledger. No TTL.
    """
    return tag(namespace, destination) + "retry"


def record(namespace: str, destination: str, key: str) -> str:
    """string: a delivery's state and receipt, one line of words (`common/record.py`).

    Written by append, claim, settle, retire; read by append, claim, settle. TTL `max_age` + `remember`, from
    each change on (retire leaves it as it is).
    """
    return f"{tag(namespace, destination)}record:{key}"


def dead(namespace: str, destination: str) -> str:
    """stream: dead letters; fields `key reason error status attempts deliveries first_at died_at alert`, and
    `object`, `trace` when there is one.

    Written by append, settle, replay, discard, retire; read by list, show, stats, ledger, snapshot,
    accept. No TTL.
    """
    return tag(namespace, destination) + "dead"


def gate(namespace: str, destination: str) -> str:
    """hash: why nothing is read; fields `state reason until opened_at` (since when), `prober lease` of the
    probe, `failures gone_1 gone_2` in a row, `ramp` since when it ramps. Without `state` it is open.

    Written by take, settle, pause, resume; read by take, settle, reserve, reclaim, snapshot, stats.
    No TTL.
    """
    return tag(namespace, destination) + "gate"


def rate(namespace: str, destination: str) -> str:
    """hash: what the fleet may send; fields `tokens at` of the token bucket, `ramp ramped` of the ramp.

    Written by take, reserve; read by take, reserve. No TTL.
    """
    return tag(namespace, destination) + "rate"


def ledger(namespace: str, destination: str) -> str:
    """hash: counters that must balance: `accepted replayed delivered duplicate superseded died lost
    discarded`; and how many died of what, `died_<reason>`.

    Written by append, settle, reclaim, replay, discard, accept, retire; read by snapshot, ledger. No TTL.
    """
    return tag(namespace, destination) + "ledger"


def objects(namespace: str, destination: str) -> str:
    """set: names of the objects that deliveries and dead letters refer to; the sweeper leaves these alone.

    Written by append, settle, discard; read by the sweeper. No TTL.
    """
    return tag(namespace, destination) + "objects"


def resolved(namespace: str, destination: str, incident: str) -> str:
    """string: event time in ms of the incident's last resolution settled here.

    Written by settle; read by claim. TTL `remember`.
    """
    return f"{tag(namespace, destination)}resolved:{incident}"


def canary(namespace: str, destination: str, key: str) -> str:
    """as above: what the canaries of a destination have of these, by the same names.

    Written by ingest, the dispatcher; read by ingest, the dispatcher. No TTL.
    """
    return f"{tag(namespace, f'{destination}/canary')}{key}"


def incident(namespace: str, incident: str) -> str:
    """string: what is known of an incident, with its latest closed episodes, one line of words.

    Written by observe; read by observe. TTL `remember`.
    """
    return f"{{{namespace}:i:{zlib.crc32(incident.encode()) & 0xFF:02x}}}:incident:{incident}"


def destinations(namespace: str) -> str:
    """set: every destination ever appended to. Written by append; read by status. No TTL."""
    return f"{{{namespace}}}:destinations"


def sweep(namespace: str) -> str:
    """string: the replica that swept the object store last; the next one waits for its end.

    Written by the sweeper; read by the sweeper. TTL ten minutes.
    """
    return f"{{{namespace}}}:sweep"


def readings(namespace: str) -> str:
    """stream: the latest readings, the only key that is trimmed; fields `host metric value timestamp labels`.

    Written by evaluate; read by people. No TTL.
    """
    return f"{{{namespace}:readings}}:stream"


def rule(namespace: str, incident: str) -> str:
    """hash: episodes of a rule with `clear` for one incident: start, newest firing reading, end.

    Written by evaluate; read by evaluate. TTL `remember`.
    """
    return f"{{{namespace}:readings}}:rule:{incident}"


def allowance(namespace: str, token: str) -> str:
    """hash: what a sender may send, `tokens at` of the bucket of its rate; absent when that is full.

    Written by spend; read by spend. TTL until it is full again.
    """
    return f"{{{namespace}:tokens}}:rate:{token}"


class Destination:
    """The keys of one destination, made once."""

    __slots__ = ("_record", "_resolved", "dead", "gate", "ledger", "objects", "rate", "retry", "stream")

    def __init__(self, namespace: str, name: str) -> None:
        self.stream = stream(namespace, name)
        self.retry = retry(namespace, name)
        self.dead = dead(namespace, name)
        self.gate = gate(namespace, name)
        self.rate = rate(namespace, name)
        self.ledger = ledger(namespace, name)
        self.objects = objects(namespace, name)
        self._record = record(namespace, name, "")
        self._resolved = resolved(namespace, name, "")

    def record(self, key: str) -> str:
        """The record of one key."""
        return self._record + key

    def resolved(self, incident: str) -> str:
        """The last resolution of one incident."""
        return self._resolved + incident

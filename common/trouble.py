"""What a server's error means: a closed enum, also the label of `redis_errors_total`; and whose it is.

Takes what redis-py raised. Every kind is waited out with backoff; after NOGROUP, for which the group is made
again, it begins anew.
"""

from __future__ import annotations

from enum import StrEnum

from redis import exceptions as errors

from common.units import Address


class Kind(StrEnum):
    """Kinds of trouble with Redis."""

    CONNECTION = "connection"
    TIMEOUT = "timeout"
    NOGROUP = "nogroup"
    READONLY = "readonly"
    LOADING = "loading"
    OOM = "oom"
    MISCONF = "misconf"
    NOREPLICAS = "noreplicas"
    CLUSTER = "cluster"
    NOPERM = "noperm"
    WRONGTYPE = "wrongtype"
    OTHER = "other"


_CODES = {
    "NOGROUP": Kind.NOGROUP,
    "UNBLOCKED": Kind.NOGROUP,
    "READONLY": Kind.READONLY,
    "LOADING": Kind.LOADING,
    "OOM": Kind.OOM,
    "MISCONF": Kind.MISCONF,
    "NOREPLICAS": Kind.NOREPLICAS,
    "MASTERDOWN": Kind.NOREPLICAS,
    "MOVED": Kind.CLUSTER,
    "ASK": Kind.CLUSTER,
    "TRYAGAIN": Kind.CLUSTER,
    "CLUSTERDOWN": Kind.CLUSTER,
    "CROSSSLOT": Kind.CLUSTER,
    "NOPERM": Kind.NOPERM,
    "NOAUTH": Kind.NOPERM,
    "WRONGPASS": Kind.NOPERM,
    "WRONGTYPE": Kind.WRONGTYPE,
}
_TYPES = (
    (errors.TimeoutError, Kind.TIMEOUT),
    (errors.OutOfMemoryError, Kind.OOM),
    (errors.ReadOnlyError, Kind.READONLY),
    (errors.BusyLoadingError, Kind.LOADING),
    (errors.AuthenticationError, Kind.NOPERM),
    (errors.NoPermissionError, Kind.NOPERM),
    (errors.MasterDownError, Kind.NOREPLICAS),
    (errors.AskError, Kind.CLUSTER),  # and MOVED
    (errors.TryAgainError, Kind.CLUSTER),
    (errors.ClusterError, Kind.CLUSTER),
    (errors.ConnectionError, Kind.CONNECTION),
)


def kind_of(fault: errors.RedisError) -> Kind:
    """What kind of trouble this is; by the client's type first, then by the code the answer begins with."""
    for known, kind in _TYPES:
        if isinstance(fault, known):
            return kind
    code = str(fault).split(" ", 1)[0].lstrip("-")
    return _CODES.get(code, Kind.OTHER)


_AT = "at "


def note(fault: errors.RedisError, server: Address) -> None:
    """Keep, with a fault of a connection, which of several servers it went to."""
    if isinstance(fault, errors.ConnectionError | errors.TimeoutError) and not server_of(fault):
        fault.add_note(f"{_AT}{server}")


def server_of(fault: BaseException) -> str:
    """`host:port` as `note` kept it; "" where the address tells it."""
    notes: list[str] = getattr(fault, "__notes__", [])
    return next((text.removeprefix(_AT) for text in notes if text.startswith(_AT)), "")

"""What a server's error means: a closed enum, also the label of `redis_errors_total`.

Takes what redis-py raised. Every kind but NOGROUP (the group is made again) is waited out with backoff.
"""

from __future__ import annotations

from enum import StrEnum

from redis import exceptions as errors


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

"""The page of what each user of the server may do, drawn from `common/rights.py`; `generate.py` writes it."""

from __future__ import annotations

from collections.abc import Iterator

from common import rights
from common.settings import Redis

_HEAD = """\
# Users of Redis

Drawn from `common/rights.py` by `docs/generate.py`; a test keeps it current, and the tests of whole services
run under these users.

Each service can have a user of its own on the server that may do what it does and nothing else. Its name
and password go into `redis.url` (`redis://ingest:password@host:6379/0`), better by `REDISPATCH_REDIS_URL`
out of a secret. A service whose user lacks something says at its start what that is, and ends.

The rules below are for the namespace `redispatch`; another one stands in its place. Give each user a
password: `on '>password'` behind its name, or `on '#<SHA-256 of it>'`. A database other than 0 needs
`+select` besides; with sentinels every user needs `+role`, in a Cluster `+cluster|slots +asking`, and all
servers need the same users.
"""
_WHO = {
    "ingest": "`python -m ingest`.",
    "dispatcher": "`python -m dispatcher`.",
    "operator": "The commands `status`, `dead`, `pause`, `resume`, `retire` and `ledger`, and the Lua files "
    "of `ops/lua` with `redis-cli`.",
    "console": "`redispatch console`.",
}
_DURABLE = {
    "ingest": "`ingest.durability: replicated` needs `+wait`, `fsynced` needs `+waitaof`.",
    "console": "Its test alerts need what `ingest.durability` needs.",
    "dispatcher": "With destinations of type `summary` it also needs what `ingest.durability` needs.",
}


def page() -> str:
    """`acl.md`: a heading per user, with its rules."""
    return "\n".join([_HEAD, *(line for name in rights.ROLES for line in _role(name))])


def _role(name: str) -> Iterator[str]:
    role = rights.ROLES[name]
    words = " ".join(f"'{word}'" if "~" in word else word for word in rights.rules(role, Redis().namespace))
    yield f"## {name}\n\n{_WHO[name]}\n"
    yield f"```sh\nredis-cli ACL SETUSER {name} {words}\n```\n"
    if name in _DURABLE:
        yield f"{_DURABLE[name]}\n"

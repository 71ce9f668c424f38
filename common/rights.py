"""What each service does on the server: the commands and keys that its user needs there, and nothing else.

A role names the scripts it runs and the commands it sends itself; which commands are in a script is read
from its text. Gives the words of `ACL SETUSER` (docs/acl.md is drawn from them), and at the start of a
service what its user lacks. Raises what redis-py raises.
"""

from __future__ import annotations

import inspect
import re

import msgspec
from msgspec import Struct
from redis.asyncio import Redis

from common import keys
from common.redis_url import Kind
from common.scripts import Script

_CALL = re.compile(r"redis\.p?call\('(\w+)'(?:, '(\w+)')?")
_PARTED = {"XINFO", "XGROUP"}  # which have subcommands
_KEYLESS = {"INFO", "SCRIPT|LOAD", "TIME", "WAIT", "WAITAOF", "ROLE", "ASKING", "CLUSTER|SLOTS"}
_script = Script("common", "rights")
_encode = msgspec.json.Encoder().encode


class Role(Struct, frozen=True):
    """What one kind of process does. `scripts` are `package/name`, `commands` those it sends itself. Kinds of
    keys (functions of `common/keys.py`) are in `writes`, or in `reads` when it only reads them; the server
    lets nobody hand a key to a script who may not write it."""

    scripts: tuple[str, ...]
    commands: tuple[str, ...]
    writes: tuple[str, ...]
    reads: tuple[str, ...] = ()


_ALWAYS = ("EVAL", "EVALSHA", "SCRIPT|LOAD", "INFO")
DURABLE = {"written": (), "replicated": ("WAIT",), "fsynced": ("WAITAOF",)}  # by ingest.durability
FOUND = {Kind.SERVER: (), Kind.SENTINEL: ("ROLE",), Kind.CLUSTER: ("ASKING", "CLUSTER|SLOTS")}  # by redis.url
ROLES = {
    "ingest": Role(
        scripts=("ingest/observe", "ingest/evaluate", "ingest/spend", "common/append"),
        commands=(*_ALWAYS, "SADD", "SMEMBERS", "GET"),
        writes=(
            *("stream", "retry", "record", "dead", "ledger", "objects", "incident", "destinations"),
            "canary",
            *("readings", "rule", "allowance"),
        ),
    ),
    "dispatcher": Role(
        scripts=(
            *(f"dispatcher/{name}" for name in ("take", "claim", "settle", "reclaim", "find", "keep_alive")),
            *("dispatcher/reap", "dispatcher/reserve", "common/append", "common/snapshot"),
        ),
        commands=(
            *_ALWAYS,
            *("XREADGROUP", "XREAD", "XGROUP|CREATE", "SADD", "SMEMBERS", "SMISMEMBER", "SET"),
        ),
        writes=(
            *("stream", "retry", "record", "dead", "gate", "rate", "ledger", "objects", "resolved"),
            *("destinations", "sweep", "canary"),
        ),
    ),
    "operator": Role(
        scripts=(
            "common/snapshot",
            *(f"ops/{name}" for name in ("list", "show", "stats", "ledger", "replay", "discard", "accept")),
            *(f"ops/{name}" for name in ("pause", "resume", "retire")),
        ),
        commands=(*_ALWAYS, "TIME", "SMEMBERS", "XRANGE", "XREVRANGE", "XLEN", "ZRANGE"),
        writes=("stream", "retry", "record", "dead", "gate", "ledger", "objects"),
        reads=("destinations",),
    ),
    "console": Role(
        scripts=(
            *("common/snapshot", "common/append"),
            *(f"ops/{name}" for name in ("replay", "discard", "pause", "resume", "retire")),
        ),
        commands=(
            *(*_ALWAYS, "TIME", "SMEMBERS", "SADD", "XRANGE", "XREVRANGE", "ZRANGE", "XPENDING", "GET"),
        ),
        writes=("stream", "retry", "record", "dead", "gate", "ledger", "objects", "destinations"),
    ),
}


def commands(role: Role) -> list[str]:
    """All commands, sorted, as `XADD` or `XINFO|GROUPS`."""
    texts = (Script(*name.split("/")).text for name in role.scripts)
    inside = {name for text in texts for name in called(text)}
    return sorted(inside | set(role.commands))


def called(text: str) -> set[str]:
    """The commands that a script's text calls."""
    return {f"{command}|{word}" if command in _PARTED else command for command, word in _CALL.findall(text)}


def pattern(kind: str, namespace: str) -> str:
    """All keys of a kind, as a glob of the server."""
    made = getattr(keys, kind)
    names = inspect.signature(made).parameters
    key: str = made(**{name: namespace if name == "namespace" else "*" for name in names})
    return re.sub(r":i:[0-9a-f]{2}}", ":i:*}", key)


def rules(role: Role, namespace: str) -> list[str]:
    """The words of ACL SETUSER, behind the user's name and password."""
    readable = [f"%R~{pattern(kind, namespace)}" for kind in role.reads]
    writable = [f"~{pattern(kind, namespace)}" for kind in role.writes]
    allowed = [f"+{command.lower()}" for command in commands(role)]
    return ["resetkeys", "resetchannels", "-@all", *writable, *readable, *allowed]


async def missing(
    redis: Redis, role: Role, namespace: str, durability: str = "written", kind: Kind = Kind.SERVER
) -> list[str]:
    """What the user of this connection lacks: commands, and keys as patterns."""
    asked = [*commands(role), *DURABLE[durability], *FOUND[kind]]
    alone = [command for command in asked if command in _KEYLESS]
    keyed = [command for command in asked if command not in _KEYLESS]
    globs = [pattern(kind, namespace) for kind in (*role.writes, *role.reads)]
    samples = {(command, ""): _sample(command, "") for command in alone}
    samples |= {(command, glob): _sample(command, glob) for command in keyed for glob in globs}
    told = await _script(redis, [], [_encode(list(samples.values()))])
    places = list(samples)
    refused = {places[place - 1] for place in told}
    lacking = [command for command in keyed if all((command, glob) in refused for glob in globs)]
    kept = [command for command in keyed if command not in lacking]
    only_read = set(globs[len(role.writes) :])
    shut = [
        glob
        for glob in globs
        if kept and (all if glob in only_read else any)((command, glob) in refused for command in kept)
    ]
    return [*(command for command in alone if (command, "") in refused), *lacking, *shut]


def _sample(command: str, glob: str) -> list[str]:
    """A call of the command on such a key; only names and places matter."""
    key, words = glob.replace("*", "any"), command.split("|")
    match command:
        case "EVAL" | "EVALSHA":
            return [*words, "1", "1", key]
        case "XREAD":
            return [*words, "STREAMS", key, "0"]
        case "XREADGROUP":
            return [*words, "GROUP", "g", "c", "STREAMS", key, ">"]
    return [*words, *([key] if glob else [])]

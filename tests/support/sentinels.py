"""One primary, two replicas and three sentinels on free loopback ports, ready within a second.

`Sentinels("redis", directory).start()`; the sentinels know each other from the start. All calls block.
"""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Self

import redis

from common.follow import follower
from tests.support.certificates import Files
from tests.support.servers import PASSWORD, PATIENCE, Kind, Server, binary, free_port

NAME = "alerts"  # of the service
USER = "watcher"  # who asks the sentinels, where they have users
QUORUM = 2


class Sentinel(Server):
    """One sentinel; what it knows is in its file."""

    def conf(self, lines: list[str]) -> None:
        """Write what it knows before it starts."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "sentinel.conf").write_text("\n".join(lines) + "\n")

    def run(self, port: int) -> None:
        """Start it on that port."""
        self.port = port
        if not self._launch():
            raise RuntimeError(f"a sentinel does not start:\n{self.log()}")

    def _launch(self) -> bool:
        self._process = subprocess.Popen(
            [binary(self.kind), str(self.directory / "sentinel.conf"), "--sentinel"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=follower(signal.SIGKILL),
        )
        return self._ready()

    def _answers(self) -> bool:
        try:
            return bool(self.cli("PING") == "PONG")
        except (redis.ConnectionError, redis.TimeoutError):  # not listening yet
            return False


class Sentinels:
    """`servers` are the primary of the start and its replicas."""

    def __init__(
        self, kind: Kind, directory: Path, *, down_after: int = 1000, tls: Files | None = None
    ) -> None:
        self.servers = [Server(kind, directory / f"server-{n}", tls=tls) for n in range(3)]
        self.sentinels = [Sentinel(kind, directory / f"sentinel-{n}", tls=tls) for n in range(3)]
        self._tls = tls
        self._down_after = down_after

    @property
    def url(self) -> str:
        """For `redis.url`."""
        nodes = ",".join(f"{sentinel.host}:{sentinel.port}" for sentinel in self.sentinels)
        plain = f"+sentinel://{nodes}/{NAME}/0"
        if self._tls is None:
            return f"redis{plain}"
        return f"rediss{plain}{self._tls.query}&sentinel_username={USER}&sentinel_password={PASSWORD}"

    def start(self, *options: str) -> Self:
        """Start all, the servers with further options, and wait until they know each other."""
        first, *replicas = self.servers
        quick = ("--repl-diskless-sync-delay", "0", "--repl-timeout", "5", *options)
        first.start(*quick)
        for server in replicas:
            server.start("--replicaof", f"{first.host} {first.port}", *quick)
        ports = [free_port() for _ in self.sentinels]
        for n, (sentinel, port) in enumerate(zip(self.sentinels, ports, strict=True)):
            sentinel.conf(self._conf(n, ports))
            sentinel.run(port)
        self.wait(lambda: all(map(self._synced, replicas)) and all(map(self._knows, self.sentinels)))
        return self

    def _conf(self, own: int, ports: list[int]) -> list[str]:
        first, *replicas = self.servers
        lines = [
            *self._listens(ports[own]),
            f"unixsocket {self.sentinels[own].socket}",
            f"user {USER} on >{PASSWORD} -@all +sentinel|master",  # all that we ask of it
            f"bind {first.host}",
            f"dir {self.sentinels[own].directory}",
            f"logfile {self.sentinels[own].directory / 'log'}",
            f"sentinel myid {own:040x}",
            f"sentinel monitor {NAME} {first.host} {first.port} {QUORUM}",
            f"sentinel down-after-milliseconds {NAME} {self._down_after}",
            f"sentinel failover-timeout {NAME} 3000",
        ]
        lines += [f"sentinel known-replica {NAME} {server.host} {server.port}" for server in replicas]
        others = [(n, port) for n, port in enumerate(ports) if n != own]
        return lines + [f"sentinel known-sentinel {NAME} {first.host} {port} {n:040x}" for n, port in others]

    def _listens(self, port: int) -> list[str]:
        if self._tls is None:
            return [f"port {port}"]
        told = {"port": 0, "tls-port": port, **self._tls.configuration}
        return [f"{name} {value}" for name, value in told.items()]

    def _synced(self, replica: Server) -> bool:
        return "master_link_status:up" in replica.cli("INFO", "replication")

    def _knows(self, sentinel: Sentinel) -> bool:
        told = sentinel.cli("INFO", "sentinel")
        return "status=ok" in told and "slaves=2,sentinels=3" in told

    def cli(self, *words: str | bytes | int) -> Any:
        """One command to the primary of this moment."""
        return self.primary().cli(*words)

    def primary(self) -> Server:
        """The one that most sentinels name."""
        told = [self._named(sentinel) for sentinel in self.sentinels if sentinel.pid]
        port = max(told, key=told.count)
        return next(server for server in self.servers if server.port == port)

    def _named(self, sentinel: Sentinel) -> int:
        return int(sentinel.cli("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1])

    def agree(self) -> None:
        """Wait until no failover is under way, and they all tell clients the same primary."""
        self.wait(
            lambda: len({self._tells(sentinel) for sentinel in self.sentinels} | {self.primary().port}) == 1
        )

    def _tells(self, sentinel: Sentinel) -> int | None:
        flat = sentinel.cli("SENTINEL", "MASTER", NAME)
        told = dict(zip(flat[::2], flat[1::2], strict=True))
        return None if "failover_in_progress" in told["flags"] else int(told["port"])

    def fail_over(self) -> Server:
        """A failover that nobody has to die for; the new primary, once the old one knows."""
        before = self.primary()
        self.wait(self._begun)
        self.wait(lambda: self.primary() is not before and before.cli("ROLE")[0] == "slave")
        return self.primary()

    def _begun(self) -> bool:
        try:
            return bool(self.sentinels[0].cli("SENTINEL", "FAILOVER", NAME) == "OK")
        except redis.ResponseError:  # the last one is not over, or no replica is good enough yet
            return False

    def wait(self, holds: Any, patience: float = PATIENCE) -> None:
        """Until it holds. Raises RuntimeError."""
        deadline = time.monotonic() + patience
        while not holds():
            if time.monotonic() > deadline:
                raise RuntimeError("the sentinels do not agree:\n" + self.sentinels[0].log()[-2000:])
            time.sleep(0.02)

    def close(self) -> None:
        """End them all."""
        for each in (*self.sentinels, *self.servers):
            each.kill()

"""Real servers on free loopback ports, each in a directory of its own, ready within some 50 ms.

`Server("valkey", directory).start()`; kinds are `valkey`, `redis` and `cluster` (one node that has all
slots: a script that crosses slots fails there). A missing binary skips the test here, and fails it when
`CI` is in the environment.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Literal

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from common import rights
from common.follow import follower
from ops import embedded
from tests.support.certificates import Files

Kind = Literal["valkey", "redis", "cluster"]
KINDS: tuple[Kind, ...] = ("valkey", "redis", "cluster")
one_kind = pytest.mark.parametrize("server", ["valkey"], indirect=True)  # for `server` and `redis`
PASSWORD = "sesame"
PATIENCE = 20.0  # seconds; a server that is not up by then never will be


_LOWEST, _PORTS = 10_000, 22_000  # below those that the system takes the ports of clients from
_told: set[int] = set()  # whoever asked may not listen yet


def free_port() -> int:
    """A port of loopback that nobody has, and nobody else among the tests is told of.

    No client gets it while its server is down. Each process of tests has a part of its own.
    """
    part = _PORTS // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    first = _LOWEST + part * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    while True:
        port = first + secrets.randbelow(part)  # not `random`: every test begins with the same seed
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:  # taken, or was a moment ago
                continue
        if port not in _told:
            _told.add(port)
            return port


def as_user(url: str, role: str) -> str:
    """The address with a role's user in it."""
    return url.replace("://", f"://{role}:{PASSWORD}@", 1)


def binary(kind: Kind) -> str:
    """The server's binary, or the test ends here."""
    found = shutil.which("redis-server") if kind == "redis" else embedded.bundled()
    if found is not None:
        return str(found)
    if "CI" in os.environ:
        pytest.fail(f"no {kind} server on this machine", pytrace=False)
    pytest.skip(f"no {kind} server on this machine")


class Server:
    """One server process; its data outlives `kill` and `restart`. With `tls` it has no port without."""

    def __init__(self, kind: Kind, directory: Path, *, aof: bool = False, tls: Files | None = None) -> None:
        self.kind = kind
        self.directory = directory
        self.aof = aof
        self.tls = tls
        self.host = "127.0.0.1"
        self.port = 0
        self._options: tuple[str, ...] = ()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """For a client over TCP."""
        plain = f"://{self.host}:{self.port}/0"
        return f"redis{plain}" if self.tls is None else f"rediss{plain}{self.tls.query}"

    @property
    def bus(self) -> int:
        """The port on which a Cluster's servers talk to each other."""
        return int(self._options[self._options.index("--cluster-port") + 1])

    @property
    def socket(self) -> Path:
        """The unix socket, for those who want none of TCP."""
        return self.directory / "s"

    @property
    def unix_url(self) -> str:
        """For a client over the unix socket."""
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        """The process, 0 when it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    def start(self, *options: str) -> Server:
        """Start with further options such as `"--maxmemory", "32mb"`, and wait until it answers."""
        self._options = options
        self.directory.mkdir(parents=True, exist_ok=True)
        for _ in range(5):  # somebody else may take the port before the server does
            self.port = free_port()
            if self._launch():
                return self
        raise RuntimeError(f"{self.kind} does not start:\n{self.log()}")

    def restart(self) -> Server:
        """The same server again: same port, data and options."""
        self.kill()
        if not self._launch():
            raise RuntimeError(f"{self.kind} does not start again:\n{self.log()}")
        return self

    def kill(self) -> None:
        """SIGKILL, and gone when this returns."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
            self._process = None

    def freeze(self) -> None:
        """SIGSTOP: connections stay, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def cli(self, *words: str | bytes | int) -> Any:
        """One command; its answer as RESP2 has it, with texts decoded. Raises redis.ResponseError."""
        where: dict[str, Any] = {"host": self.host, "port": self.port}
        make: Any = redis.Connection
        if self.tls is not None:  # as a client redis-py would take 50 ms of each connection for it
            where, make = {"path": str(self.socket)}, redis.UnixDomainSocketConnection
        link = make(
            **where,
            protocol=2,
            decode_responses=True,
            encoding_errors="backslashreplace",
            retry=Retry(NoBackoff(), 0),
            driver_info=None,
        )
        try:
            link.connect()
            link.send_command(*words)
            return link.read_response()
        finally:
            link.disconnect()

    def config(self) -> dict[str, str]:
        """Every setting of the running server."""
        flat = self.cli("CONFIG", "GET", "*")
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def log(self) -> str:
        """What the server said."""
        log = self.directory / "log"
        return log.read_text(errors="replace") if log.exists() else ""

    def _launch(self) -> bool:
        command = [
            *(binary(self.kind), "--bind", self.host, *self._listens(), "--dir", str(self.directory)),
            *("--unixsocket", str(self.socket), "--logfile", str(self.directory / "log"), "--save", ""),
            *("--appendonly", "yes" if self.aof else "no", "--enable-debug-command", "yes"),
        ]
        if self.kind == "cluster":
            command += ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]
        for user in self._users():  # there as soon as it listens, for services that wait for it
            command += ["--user", *user]
        self._process = subprocess.Popen(
            [*command, *self._options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=follower(signal.SIGKILL),
        )
        return self._ready()

    def _listens(self) -> list[str]:
        if self.tls is None:
            return ["--port", str(self.port)]
        told = {"port": "0", "tls-port": str(self.port), **self.tls.configuration}
        return [word for name, value in told.items() for word in (f"--{name}", value)]

    def _ready(self) -> bool:
        """Until it answers, or False when it ended instead."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.pid:
            if self._answers():
                return True
            time.sleep(0.005)
        self.kill()
        return False

    def let_in(self) -> None:
        """The users as they were at the start."""
        for user in self._users():
            self.cli("ACL", "SETUSER", *user)

    def _users(self) -> list[list[str]]:
        """One for each role, of the namespace that tests use."""
        more = ["+wait", "+role", "+asking", "+cluster|slots"]
        more += ["+waitaof"] if self.kind != "redis" else []
        return [
            [name, "on", f">{PASSWORD}", *rights.rules(role, "redispatch"), *more]
            for name, role in rights.ROLES.items()
        ]

    def _answers(self) -> bool:
        try:
            told = self.cli("INFO", "server", "persistence")
            if f"process_id:{self.pid}\r\n" not in told or "\nloading:0" not in told:
                return False
            return self.kind != "cluster" or self._has_slots()
        except (redis.ConnectionError, redis.TimeoutError):  # not listening yet
            return False

    def _has_slots(self) -> bool:
        told = self.cli("CLUSTER", "INFO")
        if "cluster_slots_assigned:0\r\n" in told:
            self.cli("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        return "cluster_state:ok" in told


class Pool:
    """One server per kind, started when first asked for, as good as new each time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers: dict[Kind, tuple[Server, dict[str, str]]] = {}

    def get(self, kind: Kind) -> Server:
        """The server of this kind: empty, no scripts, no clients, configured as it was when it started."""
        if kind not in self._servers:
            server = Server(kind, self._directory / kind).start()
            self._servers[kind] = server, server.config()
        server, config = self._servers[kind]
        if not server.pid:
            server.restart()
        server.thaw()
        for name, value in server.config().items():
            if config.get(name) != value:
                server.cli("CONFIG", "SET", name, config[name])
        server.cli("CLIENT", "UNPAUSE")
        server.cli("CLIENT", "KILL", "TYPE", "normal")
        server.let_in()
        server.cli("FLUSHALL")
        server.cli("SCRIPT", "FLUSH")
        return server

    def close(self) -> None:
        """End them all."""
        for server, _ in self._servers.values():
            server.kill()

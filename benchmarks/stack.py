"""Starts what is measured: a server on its own data, and services of ours as real processes.

Takes a directory, in which each process has a log file; returns processes that listen. All on loopback, all
ended with the Stack, and with this process should it be killed. Raises Broken, with the end of the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import yaml
from redis.asyncio import Redis

from common import connect, settings
from common.follow import follower
from common.units import Duration
from ops import children, embedded

ROOT = Path(__file__).parents[1]
PATIENCE = 60.0  # seconds; a process that is not up by then never will be
LOOK = 0.02  # seconds between two looks at a log


class Broken(Exception):
    """Something did not start, or ended by itself."""


class Process:
    """One process; `killed_at` is when it was gone after our SIGKILL (monotonic seconds), None before."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self.killed_at: float | None = None
        self._process = process

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code, None while it runs, negative for a signal."""
        return self._process.returncode

    def events(self) -> Iterator[dict[str, Any]]:
        """Its log lines so far; a line that a kill cut off is left out."""
        for line in self.log.read_bytes().splitlines():
            if line.startswith(b"{"):
                with contextlib.suppress(msgspec.DecodeError):
                    yield msgspec.json.decode(line)

    def has_said(self, name: str) -> bool:
        """Whether there is a log line of that event so far."""
        return any(line["event"] == name for line in self.events())

    async def event(self, name: str) -> dict[str, Any]:
        """The first log line of that event."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            ended = self.code is not None  # asked before the log is read: its last line counts
            for line in self.events():
                if line["event"] == name:
                    return line
            if ended:
                break
            await asyncio.sleep(LOOK)
        raise Broken(
            f"{self.name} did not get as far as {name!r} (exit code {self.code})\n{self.last_words()}"
        )

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        return await self._process.wait()

    async def kill(self) -> None:
        """SIGKILL, and gone when this returns."""
        self.killed_at = time.monotonic()
        if self.code is None:
            self._process.kill()
        await self._process.wait()
        self.killed_at = time.monotonic()

    async def stop(self, patience: float = PATIENCE) -> int:
        """SIGTERM, and its exit code; SIGKILL when it does not end."""
        with contextlib.suppress(ProcessLookupError):  # it ended just now
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(patience):
                return await self._process.wait()
        except TimeoutError:
            await self.kill()
            raise Broken(f"{self.name} did not end within {patience:.0f} s of SIGTERM") from None

    def last_words(self, lines: int = 8) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) or "it said nothing"


class Stack:
    """Starts processes in `directory` and sees to it that none is left."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.started: list[Process] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.started:
            if process.code is None:
                await process.kill()

    def config(self, content: Mapping[str, Any]) -> Path:
        """Write the services' configuration file."""
        path = self.directory / "redispatch.yaml"
        path.write_text(yaml.safe_dump(dict(content)))
        return path

    async def server(self, *options: str) -> Server:
        """An empty Valkey or Redis with these further options, once it answers."""
        server = Server(self, options)
        await server.start()
        return server

    async def module(
        self, module: str, config: Path, *words: str, name: str = "", worker: str = "none"
    ) -> Process:
        """`python -m` one of ours, with WORKER in its environment; it may not be ready yet."""
        environ = {key: value for key, value in os.environ.items() if not key.startswith("REDISPATCH_")}
        environ |= {
            "PYTHONPATH": str(ROOT),
            "REDISPATCH_CONFIG": str(config),
            "REDISPATCH_LOG": "json",
            "WORKER": worker,
        }
        return await self.start(name or module, children.module(module, *words), environ)

    async def start(self, name: str, command: Sequence[str], environ: Mapping[str, str]) -> Process:
        """Any command."""
        log = self.directory / f"{name}.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=dict(environ),  # uvloop takes nothing else
                cwd=self.directory,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=follower(signal.SIGKILL),
            )
        self.started.append(Process(name, process, log))
        return self.started[-1]


class Server:
    """A server whose data outlives it."""

    def __init__(self, stack: Stack, options: Iterable[str]) -> None:
        self._stack = stack
        self._options = list(options)
        self._data = stack.directory / "data"
        self._data.mkdir()
        self._process: Process | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"redis://{embedded.HOST}:{self.port}/0"

    @property
    def section(self) -> settings.Redis:
        """As a configuration has it, for a client of one's own that is in no hurry."""
        return settings.Redis(url=self.url, timeout=Duration(10))

    async def start(self) -> None:
        """Start it on its data, and return once it answers."""
        command = embedded.command(embedded.find(), self._data, self.port)
        environ = os.environ | embedded.environment()
        self._process = await self._stack.start("server", [*command, *self._options], environ)
        deadline = time.monotonic() + PATIENCE
        while not await embedded.answers(self.port, self._process.pid):
            if self._process.code is not None or time.monotonic() > deadline:
                raise Broken(f"the server does not start:\n{embedded.last_words(self._data)}")
            await asyncio.sleep(LOOK)

    async def kill(self) -> None:
        """SIGKILL, and gone when this returns."""
        if self._process is not None:
            await self._process.kill()

    def client(self) -> Redis:
        """A client; the caller closes it."""
        return connect.client(self.section, connections=4)


def free_port() -> int:
    """A port of loopback that nobody has now, below the range that the system takes clients' ports from."""
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with socket.socket() as probe:
            try:
                probe.bind((embedded.HOST, port))
            except OSError:
                continue
        return port

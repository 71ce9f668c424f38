"""Our programs as processes that need not import anything first: forked by a nursery, one for all tests.

`await Forker().fork("ingest", words, directory, environ)` is a process as `asyncio` has them. On Linux alone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from common.follow import follower
from tests.support.nursery import MOST, Order

ROOT = Path(__file__).parents[2]
LIMIT = 2**22  # bytes of a line


class Pipe(NamedTuple):
    """One end to read from, and the descriptor of the other."""

    reader: asyncio.StreamReader
    transport: asyncio.ReadTransport
    writing: int


async def pipe() -> Pipe:
    """A new one."""
    reading, writing = os.pipe()
    reader = asyncio.StreamReader(limit=LIMIT)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: protocol, os.fdopen(reading, "rb", 0)
    )
    return Pipe(reader, transport, writing)


class Forked:
    """One process; `pid`, `returncode`, `stdout`, `stderr` and methods as in `asyncio.subprocess.Process`."""

    def __init__(self, out: Pipe, err: Pipe) -> None:
        self.pid = 0
        self.returncode: int | None = None
        self.stdout, self.stderr = out.reader, err.reader
        self._pipes = out, err
        self._ended: asyncio.Task[None]
        self._told: asyncio.StreamWriter

    async def born(self, told: socket.socket) -> None:
        """Until it is there."""
        reader, self._told = await asyncio.open_connection(sock=told)
        self.pid = int(await reader.readline())
        self._ended = asyncio.create_task(self._watch(reader))

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        self.returncode = int(await reader.readline())

    def send_signal(self, number: int) -> None:
        """As `os.kill`; nothing when it has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has, a moment ago
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Its exit code."""
        await asyncio.shield(self._ended)
        assert self.returncode is not None
        return self.returncode

    def close(self) -> None:
        """Let go of its pipes; it has ended."""
        for pipe in self._pipes:
            pipe.transport.close()
        self._told.transport.abort()


class Forker:
    """A nursery, which starts when it is first needed."""

    def __init__(self) -> None:
        self._line: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    async def fork(
        self, module: str, words: Sequence[str], directory: Path, environ: Mapping[str, str]
    ) -> Forked:
        """`python -m module words...`, with its stdout and stderr in pipes."""
        order = msgspec.json.encode(Order(module, list(words), str(directory), dict(environ)))
        assert len(order) < MOST
        mine, told = socket.socketpair()
        out, err = await pipe(), await pipe()
        with told:
            socket.send_fds(self._connected(), [order], [out.writing, err.writing, told.fileno()])
        os.close(out.writing)
        os.close(err.writing)
        process = Forked(out, err)
        await process.born(mine)
        return process

    def _connected(self) -> socket.socket:
        if self._line is None:
            self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "tests.support.nursery", str(theirs.fileno())],
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    preexec_fn=follower(signal.SIGKILL),
                )
        return self._line

    def close(self) -> None:
        """End the nursery, and so whatever is left of its children."""
        if self._line is not None and self._process is not None:
            self._line.close()
            self._process.wait()

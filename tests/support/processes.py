"""Real processes of ours: started with a configuration file, watched line by line, ended by their id.

`processes.ingest(config)` runs `python -m ingest`; `dispatcher` and `redispatch` likewise. All of them are
gone when the test is over, and so is what they started (PR_SET_PDEATHSIG, on Linux).
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml

from common.follow import follower
from tests.support.forked import LIMIT, Forked, Forker

ROOT = Path(__file__).parents[2]
DEADLINE = 45.0


class Process:
    """One process; its lines so far are in `out` and `err`."""

    def __init__(self, process: asyncio.subprocess.Process | Forked, name: str) -> None:
        self.name = name
        self.out: list[str] = []
        self.err: list[str] = []
        self._process = process
        self._changed = asyncio.Condition()
        self._readers = [
            asyncio.create_task(self._read(stream, lines))
            for stream, lines in ((process.stdout, self.out), (process.stderr, self.err))
            if stream is not None
        ]

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code, None while it runs, negative for a signal."""
        return self._process.returncode

    def signal(self, number: int) -> None:
        """Send a signal to this process alone."""
        self._process.send_signal(number)

    async def wait_line(self, pattern: str, deadline: float = DEADLINE) -> str:
        """The first line, of either stream, that the pattern is found in."""
        found = re.compile(pattern)

        def line() -> str | None:
            return next((line for line in [*self.out, *self.err] if found.search(line)), None)

        try:
            async with asyncio.timeout(deadline), self._changed:
                await self._changed.wait_for(lambda: line() is not None or self._over)
        except TimeoutError:
            raise AssertionError(f"{pattern!r} did not come in {deadline} s:\n{self.text}") from None
        matching = line()
        assert matching is not None, f"ended with {self.code} before {pattern!r}:\n{self.text}"
        return matching

    async def wait_exit(self, deadline: float = DEADLINE) -> int:
        """Its exit code, once it has ended and everything it wrote was read."""
        try:
            async with asyncio.timeout(deadline):
                code = await self._process.wait()
        except TimeoutError:
            raise AssertionError(f"{self.name} did not end in {deadline} s:\n{self.text}") from None
        # What it started may hold the pipes longer; the rest of its own lines is there at once.
        await asyncio.wait(self._readers, timeout=3)
        return code

    async def wait_closed(self, deadline: float = DEADLINE) -> None:
        """Until nobody can write to its pipes any more: it and all it started have ended."""
        done, _ = await asyncio.wait(self._readers, timeout=deadline)
        assert len(done) == len(self._readers), f"something {self.name} started still runs:\n{self.text}"

    async def stop(self, deadline: float = DEADLINE) -> int:
        """SIGTERM, and its exit code."""
        self.signal(signal.SIGTERM)
        return await self.wait_exit(deadline)

    async def kill(self) -> None:
        """SIGKILL, and gone when this returns."""
        if self.code is None:
            self._process.kill()
        await self.wait_exit()

    async def close(self) -> None:
        """Kill it if need be and let go of its pipes."""
        await self.kill()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        if isinstance(self._process, Forked):
            self._process.close()
        else:  # asyncio has no public way to close the pipes of a process whose children still hold them
            self._process._transport.close()  # type: ignore[attr-defined]

    def assert_no_traceback(self) -> None:
        """Nothing that only a programmer understands was written."""
        assert "Traceback" not in self.text, self.text

    @property
    def text(self) -> str:
        """All it wrote so far, for a message."""
        return "\n".join([*self.out, *self.err])

    @property
    def _over(self) -> bool:
        return all(reader.done() for reader in self._readers)

    async def _read(self, stream: asyncio.StreamReader, lines: list[str]) -> None:
        while line := await stream.readline():
            lines.append(line.decode(errors="replace").rstrip("\n"))
            async with self._changed:
                self._changed.notify_all()
        asyncio.get_running_loop().call_soon(asyncio.create_task, self._tell())

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class Processes:
    """Starts them and sees to it that none is left.

    Our own come from `forker`, where there is one, instead of importing everything for themselves.
    """

    def __init__(self, directory: Path, forker: Forker | None) -> None:
        self.directory = directory
        self._forker = forker
        self._started: list[Process] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._started:
            await process.close()

    def assert_no_traceback(self) -> None:
        """Neither of any that was started so far."""
        for process in self._started:
            process.assert_no_traceback()

    def config(self, content: Mapping[str, Any] | str, name: str = "redispatch.yaml") -> Path:
        """Write a configuration file."""
        path = self.directory / name
        text = content if isinstance(content, str) else yaml.safe_dump(dict(content))
        if not path.exists() or path.read_text() != text:  # whoever reads it just now is to find it whole
            path.write_text(text)
        return path

    async def start(self, *words: str, env: Mapping[str, str] | None = None) -> Process:
        """Any command, with the test's directory as its own and nothing of ours in its environment."""
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=self.directory,
            env=_environ(env or {}),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LIMIT,
            preexec_fn=follower(signal.SIGKILL),
        )
        return self._add(process, words)

    def _add(self, process: asyncio.subprocess.Process | Forked, words: Sequence[str]) -> Process:
        self._started.append(Process(process, " ".join(words)))
        return self._started[-1]

    async def ingest(self, config: Path, env: Mapping[str, str] | None = None) -> Process:
        """`python -m ingest`."""
        return await self._module("ingest", [], config, env)

    async def dispatcher(self, config: Path, env: Mapping[str, str] | None = None) -> Process:
        """`python -m dispatcher`."""
        return await self._module("dispatcher", [], config, env)

    async def redispatch(
        self, *words: str, config: Path | None = None, env: Mapping[str, str] | None = None
    ) -> Process:
        """The `redispatch` command."""
        return await self._module("ops", words, config, env)

    async def _module(
        self, module: str, words: Sequence[str], config: Path | None, env: Mapping[str, str] | None
    ) -> Process:
        named = {} if config is None else {"REDISPATCH_CONFIG": str(config)}
        environ = {**named, **(env or {})}
        # `up` starts further programs, and what is on another path is not what the forker has imported.
        if self._forker is None or "up" in words or "PYTHONPATH" in environ:
            return await self.start(sys.executable, "-m", module, *words, env=environ)
        forked = await self._forker.fork(module, words, self.directory, _environ(environ))
        return self._add(forked, [module, *words])


def _environ(more: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("REDISPATCH_")}
    return {**inherited, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **more}


async def wait_ready(url: str, process: Process | None = None, deadline: float = DEADLINE) -> None:
    """Until GET `url` answers 200, say `http://127.0.0.1:8080/readyz`; fails when `process` ends first."""
    told = "nothing"
    try:
        async with asyncio.timeout(deadline), aiohttp.ClientSession() as session:
            while told != "200":
                assert process is None or process.code is None, f"ended with {process.code}:\n{process.text}"
                try:
                    async with session.get(url) as answer:
                        told = str(answer.status)
                except aiohttp.ClientError as fault:  # not listening yet
                    told = str(fault)
                await asyncio.sleep(0.01)
    except TimeoutError:
        said = "" if process is None else process.text
        raise AssertionError(f"{url} answered {told} for {deadline} s\n{said}") from None

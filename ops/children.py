"""Child processes that do not outlive whoever started them.

Takes argument lists; returns running processes. Where the system can't make a child follow its parent
(`common/follow.py`), what a killed `up` leaves behind keeps its data locked, and the next `up` says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Mapping, Sequence

from common.follow import follower


def module(name: str, *words: str) -> list[str]:
    """The command line that runs a module of ours; nothing in the working directory can take its place."""
    return [sys.executable, "-P", "-m", name, *words]


class Died(Exception):
    """A child ended that nobody had asked to."""

    def __init__(self, name: str, code: int) -> None:
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        super().__init__(f"{name} ended by itself ({how})")


class Children:
    """Those that run, by name. Each has a session of its own, so that Ctrl-C reaches only their parent."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def start(
        self, name: str, command: Sequence[str], environ: Mapping[str, str], keep: Sequence[int] = ()
    ) -> int:
        """Start one, whose output goes where ours goes; `keep` are descriptors it holds. Returns its id."""
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=keep,
            preexec_fn=follower(),
        )
        self._running[name] = process
        return process.pid

    def check(self) -> None:
        """Raises Died when one has ended."""
        for name, process in self._running.items():
            if process.returncode is not None:
                raise Died(name, process.returncode)

    async def until_one_dies(self) -> None:
        """Raises Died when one ends."""
        waits = [asyncio.ensure_future(process.wait()) for process in self._running.values()]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self.check()

    async def stop(self, names: Sequence[str], patience: float) -> None:
        """SIGTERM to these that run, SIGKILL to those that are not gone after `patience` seconds."""
        stopping = [process for name in names if (process := self._running.pop(name, None)) is not None]
        for process in stopping:
            _tell(process, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await asyncio.gather(*(process.wait() for process in stopping))
        for process in stopping:
            _tell(process, signal.SIGKILL)
            await process.wait()


def _tell(process: asyncio.subprocess.Process, number: int) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):  # it ended just now
            process.send_signal(number)

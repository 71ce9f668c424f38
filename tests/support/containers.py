"""Containers of our image as an orchestrator runs them: nobody's user, no rights, a read-only root, loopback.

Each runs in the foreground of podman, as a process whose lines and exit code are the container's.
"""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.fleet import Fleet, Running
from tests.support.image import Store
from tests.support.processes import Process, Processes
from tests.support.servers import free_port

GRACE = 30  # seconds before SIGKILL, as in the manifests
LOCKED = (
    "--network=host",
    "--read-only",
    "--tmpfs=/tmp:rw,size=16m,mode=1777",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    "--memory=256m",
    "--pids-limit=64",
)
LISTENS = ("REDISPATCH_INGEST_LISTEN", "REDISPATCH_DISPATCHER_LISTEN")  # the image has all addresses there


@dataclass
class Containers:
    """Those of one test."""

    store: Store
    processes: Processes
    config: Path
    names: list[str] = field(default_factory=list)

    async def start(self, *words: str, options: tuple[str, ...] = ()) -> Process:
        """A container with that command."""
        name = f"test-{os.getpid()}-{len(self.names)}"
        self.names.append(name)
        mount = f"--volume={self.config}:/etc/redispatch/redispatch.yaml:ro"
        command = ("run", "--rm", f"--name={name}", *LOCKED, mount, *options, self.store.image, *words)
        return await self.processes.start(*self.store.words("podman", *command), env=self.store.environ)

    async def service(self, fleet: Fleet, service: str, event: str) -> Running:
        """`python -m ingest` or `dispatcher` on a port of loopback, once it has logged the event."""
        listen = tuple(f"--env={name}=127.0.0.1:{free_port()}" for name in LISTENS)
        return await fleet.listening(await self.start("python", "-m", service, options=listen), event)

    async def told(self, *words: str) -> str:
        """What podman says about a container."""
        return await asyncio.to_thread(self.store.told, "podman", *words)

    async def stop(self, name: str) -> None:
        """As an orchestrator does it: SIGTERM, and SIGKILL after the grace period."""
        await self.told("stop", f"--time={GRACE}", name)

    async def facts(self, name: str) -> dict[str, str]:
        """What the kernel says of its first process. Raises RuntimeError or OSError when there is none."""
        pid = await self.told("inspect", "--format={{.State.Pid}}", name)
        status = await asyncio.to_thread(Path(f"/proc/{pid}/status").read_text)
        return dict(re.findall(r"^(\w+):\s+(.*)$", status, re.MULTILINE))

    def end(self) -> None:
        """None is left."""
        if self.names:
            self.store.end(*self.names)

"""What a chaos run does to a fleet: two ingest, three dispatchers and a server, killed and started again.

Takes a Stack with a server, and a receiver; keeps when it killed what, and each look at the ledger. Raises
Broken when a process ends that nobody killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from redis.exceptions import RedisError

from benchmarks.flaky import Flaky
from benchmarks.poster import Poster
from benchmarks.progress import Progress
from benchmarks.stack import Broken, Process, Server, Stack
from common import keys
from common.snapshot import Snapshot, snapshot

NAME, NAMESPACE = "hook", "chaos"
TIMEOUT = 1.0  # seconds, of the destination
DISPATCHERS, INGESTS = 3, 2
EVERY = 1.0  # seconds between two kills
DOWN = 1.0  # seconds without a server
DRAIN = 180.0  # seconds that the rest may take


class Scene:
    """Everything that runs, and what was done to it."""

    def __init__(self, stack: Stack, server: Server, receiver: Flaky, seed: int, progress: Progress) -> None:
        self.stack = stack
        self.server = server
        self.receiver = receiver
        self.progress = progress
        self.killed: dict[str, float] = {}
        self.outages: list[tuple[float, float]] = []
        self.ledgers: dict[str, Snapshot] = {}
        self.wrong: list[str] = []
        self.looks = 0
        self.dead: Counter[str] = Counter()
        self._redis = server.client()
        self._chance = random.Random(seed)
        self._config = stack.config(configuration(server.url, receiver.url))
        self._dispatchers: list[Process] = []

    async def start(self) -> list[str]:
        """Start all services; the addresses of ingest."""
        ingests = [
            await self.stack.module("ingest", self._config, name=f"ingest-{n}") for n in range(INGESTS)
        ]
        self._dispatchers = [await self._dispatcher(n) for n in range(DISPATCHERS)]
        for process in (*ingests, *self._dispatchers):
            await process.event("redis_seen" if process in ingests else "delivering")
        return [f"http://{(await process.event('listening'))['address']}" for process in ingests]

    async def _dispatcher(self, number: int) -> Process:
        name = f"dispatcher-{number}"
        return await self.stack.module("dispatcher", self._config, name=name, worker=name)

    async def storm(self, poster: Poster, alerts: int) -> None:
        """Kill while it is posted."""
        posting = asyncio.create_task(poster.run())
        outage: asyncio.Task[None] | None = None
        try:
            while not posting.done() or outage is None:
                tick = time.monotonic() + EVERY
                await self._kill_one()
                if outage is None and len(poster.acknowledged) >= alerts / 2:
                    outage = asyncio.create_task(self._outage())
                await self.look(len(poster.acknowledged))
                await asyncio.wait([posting], timeout=tick - time.monotonic())
            await asyncio.gather(posting, outage)
        finally:
            for task in (posting, outage):
                if task is not None:
                    task.cancel()

    async def _kill_one(self) -> None:
        """Kill one that is at work; on a slow machine all three may still be starting."""
        self._check()
        at_work = [process for process in self._dispatchers if process.has_said("delivering")]
        if not at_work:
            return
        doomed = self._chance.choice(at_work)
        place = self._dispatchers.index(doomed)
        await doomed.kill()
        self.killed[doomed.name] = time.monotonic()
        self._dispatchers[place] = await self._dispatcher(DISPATCHERS + len(self.killed) - 1)

    async def _outage(self) -> None:
        self.ledgers["before the outage"] = await self._snapshot()
        down = time.monotonic()
        await self.server.kill()
        await asyncio.sleep(DOWN)
        await self.server.start()
        self.outages.append((down, time.monotonic()))
        self.ledgers["after the outage"] = await self._snapshot()

    async def look(self, acknowledged: int) -> Snapshot | None:
        """The ledger as it is now, which must be exact whenever it is looked at; None without a server."""
        self._check()
        seen: Snapshot | None = None
        with contextlib.suppress(RedisError):  # there is no server just now
            seen = await self._snapshot()
        if seen is not None:
            self.looks += 1
            if seen.unaccounted:
                self.wrong.append(f"the ledger was not exact, in look {self.looks}: {seen}")
        depth = "no server" if seen is None else f"depth {seen.depth}"
        self.progress.show(
            len(self.receiver.delivered),
            f"acknowledged {acknowledged}, {depth}, {len(self.killed)} dispatchers killed",
        )
        return seen

    async def _snapshot(self) -> Snapshot:
        return await snapshot(self._redis, NAMESPACE, NAME)

    def _check(self) -> None:
        for process in self.stack.started:
            if process.code is not None and process.killed_at is None:
                raise Broken(f"{process.name} ended by itself ({process.code}):\n{process.last_words()}")

    async def drain(self, acknowledged: int) -> None:
        """Until nothing waits, dead letters replayed; or the deadline is over, which the ledger shows."""
        deadline = time.monotonic() + DRAIN
        while time.monotonic() < deadline:
            seen = await self.look(acknowledged)
            if seen is not None and seen.depth == 0:
                if seen.dead_letters == 0:
                    break
                await self._replay()
            await asyncio.sleep(0.2)
        self.ledgers["at the end"] = seen = await self._snapshot()
        if seen.depth:
            self.wrong.append(f"left over {DRAIN:.0f} s after the last kill: {await self._left()}")

    async def _replay(self) -> None:
        letters: Any = await self._redis.xrange(keys.dead(NAMESPACE, NAME))
        self.dead.update(fields[b"reason"].decode() for _, fields in letters)
        replaying = await self.stack.module("ops", self._config, "dead", "replay", name="replay")
        if await replaying.wait() != 0:
            raise Broken(f"dead letters can't be replayed:\n{replaying.last_words()}")
        self.stack.started.remove(replaying)  # it was to end

    async def _left(self) -> str:
        at = keys.Destination(NAMESPACE, NAME)
        pending = await self._redis.xpending_range(at.stream, keys.GROUP, "-", "+", 3)
        retries = await self._redis.zrange(at.retry, 0, 2, withscores=True)
        return f"pending {pending}, retries {retries}, consumers alive {[p.name for p in self._dispatchers]}"

    async def stop(self) -> None:
        """SIGTERM to all services, which end well, and look through their logs."""
        await self.receiver.idle()
        running = [p for p in self.stack.started if p.code is None and p.name != "server"]
        for process, code in zip(running, await asyncio.gather(*(p.stop() for p in running)), strict=True):
            if code != 0:
                self.wrong.append(f"{process.name} ended with {code} after SIGTERM")
        for process in self.stack.started:
            if "Traceback" in process.log.read_text(errors="replace"):
                self.wrong.append(f"a traceback in {process.log}")
        await self._redis.aclose()

    def unanswered(self) -> Iterator[tuple[str, str, int]]:
        """Worker, key and attempt of each attempt that got no answer, as the dispatchers logged them."""
        for process in self.stack.started:
            for line in process.events():
                if line["event"] == "attempt" and line["outcome"] in ("timeout", "connection"):
                    yield process.name, line["key"], line["attempt"]


def configuration(server: str, receiver: str) -> dict[str, Any]:
    """Quick retries and a short visibility timeout; everything else as it is by default."""
    hook = {
        "name": NAME,
        "type": "webhook",
        "url": receiver,
        "allow_private": True,
        "timeout": f"{TIMEOUT}s",
        "headers": {"x-worker": "${WORKER}"},
        "retry": {"attempts": 100, "base": "100ms", "cap": "1s", "max_age": "10m"},
    }
    return {
        "redis": {"url": server, "namespace": NAMESPACE},
        "ingest": {"listen": "127.0.0.1:0", "durability": "fsynced"},
        "dispatcher": {"listen": "127.0.0.1:0", "visibility_timeout": "2s", "drain_timeout": "5s"},
        "destinations": [hook],
        "routes": [{"to": [NAME]}],
    }

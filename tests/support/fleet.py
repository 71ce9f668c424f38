"""Both services as real processes on one server and one receiver: what a crash test starts, kills and asks.

`Fleet.ingest()` and `Fleet.dispatcher()` start them on ports of the system's choice, `post` sends alerts and
remembers the keys that were acknowledged, `settled` waits for the end and says whether every one arrived and
the ledger is exact. Times in seconds.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from common import connect, keys, settings
from common.snapshot import Snapshot, snapshot
from common.units import Duration
from tests.support.processes import Process, Processes
from tests.support.receiver import Receiver
from tests.support.servers import as_user

DEADLINE = 45.0
LOOK = 0.01  # between two looks at a value that nobody announces
AHEAD = 100  # alerts that wait for their delivery; more would only take time in the end
PATIENCE = "10s"  # for Redis: on a busy machine whoever answers may not run for longer than the usual 800 ms
NAME = "hook"
NAMESPACE = "redispatch"
AT = keys.Destination(NAMESPACE, NAME)


async def eventually(holds: Callable[[], Any], what: str, deadline: float = DEADLINE) -> Any:
    """The first true value that `holds` gives, which may be a coroutine; asked again and again until then."""
    told: Any = None
    try:
        async with asyncio.timeout(deadline):
            while True:
                told = holds()
                if isinstance(told, Awaitable):
                    told = await told
                if told:
                    return told
                await asyncio.sleep(LOOK)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {deadline} s, last {told!r}") from None


class Where(Protocol):
    """A server, or several that are one to their clients."""

    @property
    def url(self) -> str:
        """For `redis.url`."""

    def cli(self, *words: str | bytes | int) -> Any:
        """One command, where its key is."""


@dataclass(frozen=True)
class Running:
    """A service that listens; `url` is where."""

    process: Process
    url: str
    http: aiohttp.ClientSession

    @property
    def consumer(self) -> str:
        """Its name in the group (a dispatcher's)."""
        return str(self.lines("delivering")[0]["consumer"])

    async def status(self, path: str) -> int:
        """What a GET answers."""
        async with self.http.get(self.url + path) as answer:
            return answer.status

    async def metric(self, name: str, **labels: str) -> float:
        """The sum over all series of that name that have these labels."""
        async with self.http.get(self.url + "/metrics") as answer:
            text = await answer.text()
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
        assert any(s.name == name for s in samples), f"no metric {name}"
        return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())

    async def wait_metric(self, name: str, least: float, deadline: float = DEADLINE, **labels: str) -> float:
        """Until the metric is at least so much; its value."""

        async def reached() -> list[float]:
            value = await self.metric(name, **labels)
            return [value] if value >= least else []

        [value] = await eventually(reached, f"{name}{labels} >= {least}", deadline)
        return float(value)

    def freeze(self) -> None:
        """SIGSTOP."""
        self.process.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.signal(signal.SIGCONT)

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Its log lines of this event so far."""
        told = (json.loads(line) for line in self.process.err if line.startswith("{"))
        return [line for line in told if line["event"] == event]


@dataclass
class Fleet:
    """Started with a server's address; `sections` replace what is in the configuration."""

    processes: Processes
    receiver: Receiver
    server: Any  # a Server mostly, and always a Where
    url: str  # where the services find the server, through a proxy perhaps
    http: aiohttp.ClientSession
    sections: dict[str, Any] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    _posted: int = 0

    def config(self) -> Path:
        """The configuration file: one webhook, quick retries."""
        hook = {"name": NAME, "type": "webhook", "url": self.receiver.url, "allow_private": True}
        content: dict[str, Any] = {
            "redis": {"url": self.url, "namespace": NAMESPACE, "timeout": PATIENCE},
            "ingest": {"listen": "127.0.0.1:0"},
            "dispatcher": {"listen": "127.0.0.1:0", "visibility_timeout": "1s"},
            "destination": {"retry": {"preset": "page", "base": "50ms", "cap": "1s"}},
        }
        for name, section in self.sections.items():
            content[name] = content.get(name, {}) | section if isinstance(section, dict) else section
        content["destinations"] = [hook | content.pop("destination")]
        return self.processes.config({**content, "routes": [{"to": [NAME]}]})

    async def ingest(self, ready: bool = True, env: Mapping[str, str] | None = None) -> Running:
        """`python -m ingest`, once it has seen Redis."""
        process = await self.processes.ingest(self.config(), self.environ("ingest", env))
        return await self.listening(process, "redis_seen" if ready else None)

    async def dispatcher(self, ready: bool = True, env: Mapping[str, str] | None = None) -> Running:
        """`python -m dispatcher`, once it delivers."""
        process = await self.processes.dispatcher(self.config(), self.environ("dispatcher", env))
        return await self.listening(process, "delivering" if ready else None)

    def environ(self, role: str, env: Mapping[str, str] | None) -> dict[str, str]:
        """With the service's own user of the server, unless the test chose another address."""
        plain = self.url == self.server.url
        own = {"REDISPATCH_REDIS_URL": as_user(self.url, role)} if plain else {}
        return {**own, **(env or {})}

    async def both(self) -> tuple[Running, Running]:
        """One of each."""
        ingest, dispatcher = await asyncio.gather(self.ingest(), self.dispatcher())
        return ingest, dispatcher

    async def listening(self, process: Process, event: str | None) -> Running:
        """A service that was started, once it listens and has logged the event."""
        line = json.loads(await process.wait_line('"event":"listening"'))
        if event is not None:
            await process.wait_line(f'"event":"{event}"')
        return Running(process, f"http://{line['address']}", self.http)

    def alert(self) -> dict[str, Any]:
        """One that is like no other, the same whenever it is sent again."""
        self._posted += 1
        return {"host": f"host-{self._posted}", "name": "disk", "timestamp": int(time.time() * 1000)}

    async def send(self, ingest: Running, alert: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """One request; its status and body. A 2xx is an acknowledgement."""
        async with self.http.post(ingest.url + "/v1/alerts", json=alert) as answer:
            told = await answer.json(content_type=None)
            if answer.status in (200, 201):
                assert told["destinations"] == [NAME]
                self.acknowledged.add(told["key"])
            return answer.status, told

    async def post(self, ingest: Running, count: int = 1) -> list[str]:
        """Post so many new alerts, each answered 201; their keys."""
        answers = await asyncio.gather(*(self.send(ingest, self.alert()) for _ in range(count)))
        assert {status for status, _ in answers} <= {201}, answers
        return [told["key"] for _, told in answers]

    async def insist(self, ingest: Running, alert: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Repeat a request until it is acknowledged, as a good sender does; the last answer."""
        last: tuple[int, dict[str, Any]] = (0, {})

        async def acknowledged() -> bool:
            nonlocal last
            try:
                last = await self.send(ingest, alert)
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):  # before the answer, or in it
                return False
            assert last[0] in (200, 201, 503), last
            return last[0] != 503

        await eventually(acknowledged, f"an acknowledgement of {alert}")
        return last

    @asynccontextmanager
    async def load(self, ingest: Running, senders: int = 4) -> AsyncIterator[None]:
        """Senders that post one alert after the other, each until it is acknowledged; not far ahead."""
        over = asyncio.Event()

        async def sender() -> None:
            while not over.is_set():
                if self._ahead <= AHEAD:
                    await self.insist(ingest, self.alert())
                await asyncio.sleep(LOOK)  # some 300 a second in all

        tasks = [asyncio.create_task(sender()) for _ in range(senders)]
        try:
            yield
        finally:
            over.set()
            await asyncio.gather(*tasks)

    @property
    def _ahead(self) -> int:
        return len(self.acknowledged) - len(self.receiver.answered)

    async def flowing(self, more: int = 50, deadline: float = DEADLINE) -> None:
        """Until so many more alerts have arrived than by now; for use under load."""
        await self.receiver.wait_answered(len(self.receiver.answered) + more, deadline)

    async def snapshot(self) -> Snapshot:
        """The destination at this instant; over a new connection, since tests break old ones."""
        redis = connect.client(settings.Redis(url=self.server.url, timeout=Duration(10)))
        try:
            return await snapshot(redis, NAMESPACE, NAME)
        finally:
            await redis.aclose(close_connection_pool=True)

    async def wait_snapshot(
        self, holds: Callable[[Snapshot], bool], what: str, deadline: float = DEADLINE
    ) -> Snapshot:
        """The first snapshot that is so."""

        async def matching() -> Snapshot | None:
            seen = await self.snapshot()
            assert seen.unaccounted == 0, seen
            return seen if holds(seen) else None

        found = await eventually(matching, what, deadline)
        assert isinstance(found, Snapshot)
        return found

    async def settled(self, *, died: int = 0, deadline: float = DEADLINE) -> Snapshot:
        """Until nothing is left to do: all that was acknowledged has arrived or died, nothing is missing."""
        seen = await self.wait_snapshot(lambda seen: seen.depth == 0, "an empty queue", deadline)
        arrived = self.acknowledged & self.receiver.accepted.keys()
        assert len(self.acknowledged) - len(arrived) == died, self.acknowledged - arrived
        ended = (seen.ledger.died, seen.dead_letters, seen.ledger.lost, seen.in_flight)
        assert ended == (died, died, 0, 0), seen
        return seen

    def assert_no_duplicates(self) -> None:
        """Every delivery got one request and no more."""
        again = {key: n for key, n in self.receiver.accepted.items() if n > 1}
        assert not again, again

    def dead_letters(self) -> list[dict[str, str]]:
        """All of them."""
        told = self.server.cli("XRANGE", AT.dead, "-", "+")
        return [dict(zip(flat[::2], flat[1::2], strict=True)) for _, flat in told]

    def pending(self) -> list[tuple[str, int]]:
        """Consumer and delivery count of each entry that was handed out and is not settled."""
        told = self.server.cli("XPENDING", AT.stream, keys.GROUP, "-", "+", 1000)
        return [(consumer, deliveries) for _, consumer, _, deliveries in told]

    def calls(self, command: str) -> int:
        """How often the server has run a command since its start."""
        found = re.search(rf"cmdstat_{command}:calls=(\d+)", self.server.cli("INFO", "commandstats"))
        return int(found[1]) if found else 0


class Fleets:
    """Makes a fleet and sees to it that its connections are closed."""

    def __init__(self, processes: Processes, receiver: Receiver) -> None:
        self._processes = processes
        self._receiver = receiver
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def __call__(self, server: Where, *, through: str | None = None, **sections: Any) -> Fleet:
        """A fleet on this server, `through` another address of it, with sections of the configuration."""
        http = await self._stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)))
        url = server.url if through is None else through
        return Fleet(self._processes, self._receiver, server, url, http, sections)

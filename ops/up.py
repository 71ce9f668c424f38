"""`redispatch up`: everything on one machine, with a server of its own, until told to stop.

Starts the server, a receiver when the configuration sends to it, dispatcher, ingest and console as child
processes; says where they listen; on SIGINT and SIGTERM lets the services drain, then stops the rest. A
server it did not start is never written to, unless `--redis-url` names it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import click

from common import connect
from common.follow import follow
from common.settings import Settings
from common.units import Address
from dispatcher.destinations.webhook import Settings as Webhook
from ops import children, embedded, lock, options
from ops.post import base_url, ingest_url

EVERY = 0.02  # seconds between looks at a child that is not ready yet
SERVER_PATIENCE = 15.0  # seconds a server may take to write its data
MARGIN = 5.0  # seconds beyond drain_timeout before a service is killed


@dataclass(frozen=True)
class Plan:
    """What is to run, and where."""

    settings: Settings
    config: str | None
    data: Path
    own_server: bool
    receiver: Address

    @property
    def secrets(self) -> list[str] | None:
        """With what the deliveries to the receiver are signed; None when nothing is sent there."""
        for destination in self.settings.destinations:
            if not isinstance(destination, Webhook):
                continue
            url = urlsplit(destination.url.reveal() if destination.url else "")
            if (url.hostname, url.port) == self.receiver:
                return [secret.reveal() for secret in destination.secrets]
        return None

    @property
    def environ(self) -> dict[str, str]:
        """The children's environment."""
        return dict(os.environ) | ({"REDISPATCH_CONFIG": self.config} if self.config else {})


class Up:
    """One run."""

    def __init__(self, plan: Plan, held: lock.DataLock) -> None:
        self._plan = plan
        self._held = held
        self._children = children.Children()

    async def live(self) -> None:
        """Start everything and stay. Raises Died, or ClickException when it can't start."""
        settings = self._plan.settings
        port = own_port(settings.redis.url) if self._plan.own_server else None
        await _must_be_free("ingest.listen", settings.ingest.listen)
        await _must_be_free("dispatcher.listen", settings.dispatcher.listen)
        await _must_be_free("console.listen", settings.console.listen)
        if port is not None:
            await self._start_server(port)
        if self._plan.secrets is not None:
            await self._start_receiver(self._plan.secrets)
        for service in ("dispatcher", "ingest"):
            await self._start(service, children.module(service))
        await self._start("console", children.module("ops", "console"))
        await self._ready(partial(_answers, f"{base_url(settings.dispatcher.listen)}/readyz"))
        await self._ready(_readiness(settings))
        await self._ready(partial(_answers, f"{base_url(settings.console.listen)}/readyz"))
        click.echo(banner(self._plan))
        await self._children.until_one_dies()

    async def stop(self) -> None:
        """The services first, so that what they have in hand is settled; then what they need."""
        self._held.leave()
        drain = self._plan.settings.dispatcher.drain_timeout + MARGIN
        await self._children.stop(["ingest", "dispatcher", "console"], drain)
        await self._children.stop(["receiver"], MARGIN)
        await self._children.stop(["server"], SERVER_PATIENCE)

    async def _start(self, name: str, command: list[str], **environ: str) -> int:
        return await self._children.start(
            name, command, self._plan.environ | environ, keep=[self._held.descriptor]
        )

    async def _start_server(self, port: int) -> None:
        if await _connects(embedded.HOST, port):
            raise click.ClickException(
                f"something already answers at {embedded.HOST}:{port}, and up writes to no server that it "
                f"did not start. To use that one: redispatch up --redis-url {self._plan.settings.redis.url}"
            )
        binary = embedded.find()
        directory = self._plan.data.resolve() / "server"
        directory.mkdir(exist_ok=True)
        command = embedded.command(binary, directory, port)
        pid = await self._start("server", command, **embedded.environment())
        try:
            await self._ready(partial(embedded.answers, port, pid))
        except children.Died as death:
            raise click.ClickException(f"{death}:\n{embedded.last_words(directory)}") from death

    async def _start_receiver(self, secrets: list[str]) -> None:
        listen = str(self._plan.receiver)
        await _must_be_free("--receiver", listen)
        command = children.module("ops", "receive", "--listen", listen)
        await self._start("receiver", command, RECEIVE_SECRETS=" ".join(secrets))
        await self._ready(partial(_answers, f"{base_url(listen)}/healthz"))

    async def _ready(self, answers: Callable[[], Awaitable[bool]]) -> None:
        """Until it answers; raises Died when a child ends first."""
        while not await answers():
            self._children.check()
            await asyncio.sleep(EVERY)
        self._children.check()


def own_port(url: str) -> int:
    """The port for a server of our own at the configured address."""
    parts = urlsplit(url)
    if parts.scheme != "redis" or parts.hostname not in ("127.0.0.1", "localhost") or "@" in parts.netloc:
        raise click.ClickException(
            "redis.url is not a plain redis://127.0.0.1:port, where up could start a server of its own; "
            "to use the server it names: redispatch up --redis-url with that address"
        )
    return parts.port or 6379


async def _must_be_free(setting: str, listen: str) -> None:
    """Somebody else there would be taken for our service."""
    url = urlsplit(base_url(listen))
    if not url.port:
        raise click.ClickException(f"{setting} is {listen}: up needs a port that is known beforehand")
    if await _connects(url.hostname or "", url.port):
        raise click.ClickException(f"something already listens on {url.netloc}: end it, or change {setting}")


def _readiness(settings: Settings) -> Callable[[], Awaitable[bool]]:
    """Whether ingest is ready; where it wants a certificate, which we have not, whether somebody listens."""
    url = ingest_url(settings)
    if settings.ingest.tls.client_ca is None:
        return partial(_answers, f"{url}/readyz")
    parts = urlsplit(url)
    return partial(_connects, parts.hostname or "", parts.port or 0)


async def _connects(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:  # nobody there
        return False
    writer.close()
    return True


async def _answers(url: str) -> bool:
    """Whether a GET of that address is answered with 200 now; whose certificate it shows does not matter."""
    parts = urlsplit(url)
    tls = ssl._create_unverified_context() if parts.scheme == "https" else None  # noqa: S323 - it is our child
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=tls)
            writer.write(f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
            line = await reader.readline()
            writer.close()
    except OSError:  # not listening yet, or too slow
        return False
    return b" 200 " in line


def banner(plan: Plan) -> str:
    """Where things listen, and what to try."""
    settings = plan.settings
    ingest = ingest_url(settings)
    told = {
        "ingest": f"{ingest}  (POST /v1/alerts)",
        "dispatcher": f"{base_url(settings.dispatcher.listen)}  (/metrics)",
        "console": f"{base_url(settings.console.listen)}/  (open it in a browser)",
        "receiver": "" if plan.secrets is None else f"http://{plan.receiver}",
        "server": connect.masked(settings.redis.url) + (f", data in {plan.data}" if plan.own_server else ""),
    }
    where = "\n".join(f"  {name:<11} {place}" for name, place in told.items() if place)
    token = "-H 'Authorization: Bearer TOKEN' " if settings.tokens else ""
    alert = '{"host":"web-1","name":"disk-full","severity":"critical","summary":"disk at 100%"}'
    curl = f"curl -i {ingest}/v1/alerts -H 'Content-Type: application/json' {token}-d '{alert}'"
    return f"redispatch is up:\n{where}\nTry it:\n  {curl}\nCtrl-C stops it."


async def run(plan: Plan) -> None:
    """Until a signal, or until a child ends (raises click's Exit)."""
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    life = asyncio.create_task(_live(plan))
    signalled = asyncio.create_task(told.wait())
    await asyncio.wait({life, signalled}, return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    if not life.done():
        click.echo("stopping: what is in hand is finished first")
        life.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await life


async def _live(plan: Plan) -> None:
    async with lock.DataLock(plan.data, click.echo) as held:
        up = Up(plan, held)
        try:
            await up.live()
        except children.Died as death:
            click.echo(f"Error: {death}; stopping the rest", err=True)
            raise click.exceptions.Exit(1) from death
        finally:
            await up.stop()


@click.command()
@options.config_option
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default="data",
    show_default=True,
    help="Where the embedded server keeps its data.",
)
@click.option("--redis-url", metavar="URL", help="Use this server instead of an embedded one.")
@click.option(
    "--receiver",
    type=options.AddressType(),
    default="127.0.0.1:8099",
    show_default=True,
    help="Start a receiver here when the configuration sends to it.",
)
@click.option("--with-parent", type=int, hidden=True, help="Stop when this process, our parent, ends.")
def up(
    config: str | None, data: Path, redis_url: str | None, receiver: Address, with_parent: int | None
) -> None:
    """Run everything on this machine, until Ctrl-C."""
    if with_parent is not None:
        follow(with_parent)
    if redis_url is not None:
        os.environ["REDISPATCH_REDIS_URL"] = redis_url
    plan = Plan(options.settings(config), config, data, redis_url is None, receiver)
    try:
        asyncio.run(run(plan))
    except (children.Died, embedded.Missing, lock.Held) as fault:
        raise click.ClickException(str(fault)) from fault

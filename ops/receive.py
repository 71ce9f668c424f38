"""`redispatch receive`: a webhook receiver for trying things out, which prints what arrives.

It can be told to fail, when it starts and while it runs (`POST /_fail?status=500&count=3`), and says whether
a request's Standard Webhooks signature is right. Texts from outside are printed with control characters
escaped.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
from aiohttp import web

from common.units import Address, Duration
from ops import options, signature
from ops.text import plain

MAX_BODY = 64 * 1024**2


@dataclass
class Failing:
    """Which requests get `status` instead of 200: the next `first`, and of the others the share `rate`."""

    status: int = 500
    first: int = 0
    rate: float = 0.0

    def answer(self, chance: float) -> int:
        """The status of one request; `chance` is a random number of 0 .. 1."""
        if self.first > 0:
            self.first -= 1
            return self.status
        return self.status if chance < self.rate else 200

    def told(self, query: Mapping[str, str]) -> None:
        """What `/_fail` asks for: `status`, and `count` or `rate`; `count=0` ends it. Raises ValueError."""
        if not query.keys() <= {"status", "count", "rate"}:
            raise ValueError("unknown")
        status, first = int(query.get("status", "500")), int(query.get("count", "0"))
        rate = float(query.get("rate", "0" if "count" in query else "1"))
        if not (200 <= status <= 599 and first >= 0 and 0 <= rate <= 1):
            raise ValueError("out of range")
        self.status, self.first, self.rate = status, first, rate

    def __str__(self) -> str:
        """`503 to the next 3, then 200`."""
        share = {0.0: "200", 1.0: f"{self.status} to all"}.get(
            self.rate, f"{self.status} to {self.rate:.0%} of them"
        )
        return f"{self.status} to the next {self.first}, then {share}" if self.first else share


class Receiver:
    """Answers, and prints what it answered to."""

    def __init__(self, failing: Failing, secrets: Sequence[str], delay: float = 0.0) -> None:
        self._failing = failing
        self._secrets = secrets
        self._delay = delay

    def app(self) -> web.Application:
        """Its routes."""
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_post("/_fail", self._fail)
        app.router.add_route("*", "/{path:.*}", self._receive)
        return app

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _fail(self, request: web.Request) -> web.Response:
        try:
            self._failing.told(request.query)
        except ValueError:
            return web.json_response(
                {"error": "it takes status (200 to 599), count (0 or more) and rate (0 to 1)"}, status=400
            )
        failing = self._failing
        click.echo(f"receiver: answers {failing} from now on")
        return web.json_response({"status": failing.status, "count": failing.first, "rate": failing.rate})

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        await asyncio.sleep(self._delay)
        status = self._failing.answer(random.random())  # noqa: S311 - chance, nothing secret
        click.echo(describe(request.method, request.path, status, self._signed(request.headers, body), body))
        return web.Response(status=status)

    def _signed(self, headers: Mapping[str, str], body: bytes) -> str:
        """The delivery's id and what its signature is worth."""
        known = headers.get("webhook-id", "without webhook-id")
        if not self._secrets:
            return f"{known} (signature not checked: no --secret)"
        fault = signature.fault(headers, body, self._secrets, time.time())
        return f"{known} (signature right)" if fault is None else f"{known} (SIGNATURE WRONG: {fault})"


def describe(method: str, path: str, status: int, signed: str, body: bytes) -> str:
    """One line on what arrived, and the body below it."""
    try:
        content: Any = json.loads(body)
    except ValueError:
        content = body.decode(errors="replace")
    data = content.get("data") if isinstance(content, dict) else None
    alert = ""
    if isinstance(data, dict) and "name" in data:
        alert = f" {data.get('status', '')} {data['name']} on {data.get('host', '')}"
    clock = time.strftime("%H:%M:%S")
    head = plain(f"{clock} receiver: {method} {path} -> {status}{alert}, {signed}")
    lines = (
        content if isinstance(content, str) else json.dumps(content, indent=2, ensure_ascii=False)
    ).split("\n")
    return "\n".join([head, *(f"    {plain(line)}" for line in lines)])


async def serve(receiver: Receiver, listen: Address) -> None:
    """Until SIGINT or SIGTERM. Raises OSError when the address is taken."""
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    runner = web.AppRunner(receiver.app(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, *listen).start()
        click.echo(f"receiver: listens on http://{Address(*runner.addresses[0][:2])}/")
        await over.wait()
    finally:
        await runner.cleanup()


@click.command()
@click.option(
    "--listen",
    type=options.AddressType(),
    default="127.0.0.1:8099",
    show_default=True,
    help="Where it is reached.",
)
@click.option("--fail", "status", type=click.IntRange(200, 599), help="Answer this instead of 200.")
@click.option("--fail-rate", type=click.FloatRange(0, 1), help="To this share of the requests, not to all.")
@click.option("--fail-first", type=click.IntRange(0), help="To the first so many requests, not to all.")
@click.option(
    "--delay", type=options.DurationType(), default="0s", help="Answer after this time, such as 1s."
)
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    envvar="RECEIVE_SECRETS",
    metavar="whsec_...",
    help="Check signatures with it; may be repeated, or stand in RECEIVE_SECRETS.",
)
def receive(
    listen: Address,
    status: int | None,
    fail_rate: float | None,
    fail_first: int | None,
    delay: Duration,
    secrets: tuple[str, ...],
) -> None:
    """Print what arrives, for trying things out.

    While it runs, POST /_fail?status=503&count=3 makes the next three requests fail, /_fail?rate=0.2 a
    fifth of them, /_fail all, and /_fail?count=0 none.
    """
    for secret in secrets:
        try:
            signature.key_of(secret)
        except ValueError as fault:
            raise click.BadParameter(str(fault), param_hint="--secret") from fault
    every = status is not None and fail_rate is None and fail_first is None
    failing = Failing(status or 500, fail_first or 0, 1.0 if every else fail_rate or 0.0)
    try:
        asyncio.run(serve(Receiver(failing, secrets, delay), listen))
    except OSError as fault:
        raise click.ClickException(
            f"receiver can't listen on {listen} ({options.reason(fault)}): see --listen"
        ) from fault

"""`redispatch up`: everything starts, delivers, survives SIGKILL, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.certificates import Authority
from tests.support.fleet import PATIENCE
from tests.support.processes import DEADLINE, Process, Processes
from tests.support.servers import Server, free_port

SECRET = "whsec_Zm9yLXRyeWluZy1vdXQtb25seS1ub3Qtc2VjcmV0"
PARENT = "import subprocess, sys, os; subprocess.run([*sys.argv[1:], '--with-parent', str(os.getpid())])"
IS_UP = "^Ctrl-C stops it"
LONG = 2 * DEADLINE  # five programs import everything for themselves, after what was killed has ended
pytestmark = pytest.mark.timeout(2 * LONG)
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")


@dataclass
class Place:
    """A configuration with ports of its own, and what is told of `up` there."""

    processes: Processes
    redis: int = field(default_factory=free_port)
    ingest: int = field(default_factory=free_port)
    dispatcher: int = field(default_factory=free_port)
    receiver: int = field(default_factory=free_port)
    console: int = field(default_factory=free_port)
    workers: int = 1
    tls: dict[str, str] = field(default_factory=dict)

    def config(self) -> Path:
        """Its file."""
        receiver = {
            "name": "receiver",
            "type": "webhook",
            "url": f"http://127.0.0.1:{self.receiver}/",
            "allow_private": True,
            "secrets": [SECRET],
        }
        return self.processes.config(
            {
                "redis": {"url": f"redis://127.0.0.1:{self.redis}/0", "timeout": PATIENCE},
                "ingest": {"listen": f"127.0.0.1:{self.ingest}", "workers": self.workers, "tls": self.tls},
                "dispatcher": {"listen": f"127.0.0.1:{self.dispatcher}", "drain_timeout": "5s"},
                "console": {"listen": f"127.0.0.1:{self.console}"},
                "destinations": [{"name": "terminal", "type": "stdout"}, receiver],
                "routes": [{"to": ["terminal", "receiver"]}],
            }
        )

    def words(self, *more: str) -> list[str]:
        """The command line after `redispatch`."""
        return ["up", "--receiver", f"127.0.0.1:{self.receiver}", *more]

    async def up(self, *more: str) -> Process:
        """`redispatch up`, when it says that it is."""
        process = await self.processes.redispatch(*self.words(*more), config=self.config())
        await process.wait_line(IS_UP, LONG)
        return process

    def quiet(self) -> bool:
        """Whether nobody listens any more and the data is free."""
        for port in (self.redis, self.ingest, self.dispatcher, self.receiver, self.console):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return False
        with (self.processes.directory / "data" / "lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True


@pytest.fixture
def place(processes: Processes) -> Place:
    return Place(processes)


async def post(url: str, alert: dict[str, Any]) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.post(url, json=alert) as answer:
        return answer.status, await answer.json()


async def children_of(pid: int, name: str) -> int:
    """The id of the child that runs a module of that name."""
    listed = await asyncio.to_thread(Path(f"/proc/{pid}/task/{pid}/children").read_text)
    for child in listed.split():
        words = await asyncio.to_thread(Path(f"/proc/{child}/cmdline").read_bytes)
        if name.encode() in words.split(b"\0"):
            return int(child)
    raise AssertionError(f"{name} is not among {listed}")


async def test_the_printed_line_leads_to_both_destinations(place: Place) -> None:
    up = await place.up()
    words = shlex.split(await up.wait_line("^  curl"))
    url, body = words[2], words[-1]
    status, told = await post(url, json.loads(body))
    assert (status, told["status"], told["destinations"]) == (201, "queued", ["terminal", "receiver"])
    key = told["key"]
    await up.wait_line(rf"receiver: POST / -> 200 firing disk-full on web-1, {key} \(signature right\)")
    await up.wait_line(rf'^(?!    ).*"?{key}')
    assert await up.stop() == 0
    await up.wait_closed()
    assert place.quiet()
    up.assert_no_traceback()


@pytest.mark.parametrize("client_ca", [None, "authority.crt"])
async def test_it_is_up_with_certificates_too(place: Place, tmp_path: Path, client_ca: str | None) -> None:
    """Also where ingest wants one from its clients, and so from `up`, which has none."""
    authority = Authority(tmp_path)
    for name in ("server", "client"):
        authority.issue(name)
    both = [(tmp_path / f"client.{kind}").read_text() for kind in ("crt", "key")]
    (tmp_path / "client.pem").write_text("".join(both))
    place.tls = {"cert": "server.crt", "key": "server.key"} | ({"client_ca": client_ca} if client_ca else {})
    up = await place.up()
    assert f"curl -i https://127.0.0.1:{place.ingest}/v1/alerts" in up.text
    words = ["send", "--ca", "authority.crt", *(["--cert", "client.pem"] if client_ca else [])]
    send = await place.processes.redispatch(*words, config=place.config())
    assert await send.wait_exit() == 0, send.text
    up.signal(signal.SIGINT)
    assert await up.wait_exit() == 0


async def test_ctrl_c_leaves_nothing_behind(place: Place) -> None:
    up = await place.up()
    up.signal(signal.SIGINT)
    assert await up.wait_exit() == 0
    await up.wait_closed()
    assert place.quiet()
    up.assert_no_traceback()


@linux
@pytest.mark.parametrize("workers", [1, 2])
async def test_after_sigkill_the_next_one_has_the_data(place: Place, workers: int) -> None:
    place.workers = workers
    alert = {"host": "web-1", "name": "disk-full", "timestamp": int(time.time())}
    url = f"http://127.0.0.1:{place.ingest}/v1/alerts"
    first = await place.up()
    assert (await post(url, alert))[0] == 201
    first.signal(signal.SIGKILL)
    second = await place.up()  # at once: what the first one started may still be stopping
    status, told = await post(url, alert)
    assert (status, told["status"]) == (200, "duplicate")
    assert (await post(url, alert | {"host": "web-2"}))[0] == 201
    await second.wait_line("firing disk-full on web-2")
    assert await second.stop() == 0
    await first.wait_closed()
    await second.wait_closed()
    assert place.quiet()
    second.assert_no_traceback()


async def test_a_server_that_answers_already_is_left_alone(place: Place, valkey: Server) -> None:
    place.redis = valkey.port
    valkey.cli("CONFIG", "RESETSTAT")
    up = await place.processes.redispatch(*place.words(), config=place.config())
    assert await up.wait_exit() == 1
    assert f"redispatch up --redis-url {valkey.url}" in up.text
    assert valkey.cli("DBSIZE") == 0
    commands = re.findall(r"cmdstat_([\w|]+)", valkey.cli("INFO", "commandstats"))
    assert set(commands) == {"config|resetstat", "dbsize"}  # ours, and none of its own
    up.assert_no_traceback()


async def test_a_server_that_is_named_is_used_and_stays(place: Place, valkey: Server) -> None:
    up = await place.up("--redis-url", valkey.url)
    status, _ = await post(f"http://127.0.0.1:{place.ingest}/v1/alerts", {"host": "h", "name": "n"})
    assert status == 201
    await up.wait_line("firing n on h")
    assert await up.stop() == 0
    assert valkey.cli("PING") == "PONG"
    assert valkey.cli("DBSIZE") > 0
    assert place.quiet()


async def test_a_second_one_on_the_same_data_is_refused(place: Place) -> None:
    await place.up()
    second = await place.processes.redispatch(*place.words(), config=place.config())
    assert await second.wait_exit() == 1
    assert second.err == ["Error: redispatch up already runs with the data in data; stop it first"]


@linux
@pytest.mark.parametrize("name", ["ingest", "dispatcher"])
async def test_a_child_that_dies_ends_everything(place: Place, name: str) -> None:
    up = await place.up()
    os.kill(await children_of(up.pid, name), signal.SIGKILL)
    assert await up.wait_exit() == 1
    await up.wait_closed()
    assert f"Error: {name} ended by itself (SIGKILL); stopping the rest" in up.err
    assert place.quiet()
    up.assert_no_traceback()


@pytest.mark.parametrize("setting", ["ingest.listen", "dispatcher.listen", "console.listen", "--receiver"])
async def test_a_taken_port_is_said_and_nothing_stays(place: Place, setting: str) -> None:
    port = getattr(place, setting.strip("-").removesuffix(".listen"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        up = await place.processes.redispatch(*place.words(), config=place.config())
        assert await up.wait_exit() == 1
        await up.wait_closed()
    assert f"something already listens on 127.0.0.1:{port}: end it, or change {setting}" in up.text
    assert place.quiet()
    up.assert_no_traceback()


@linux
async def test_it_ends_with_a_parent_that_is_killed(place: Place) -> None:
    command = [sys.executable, "-m", "ops", *place.words("--config", str(place.config()))]
    parent = await place.processes.start(sys.executable, "-c", PARENT, *command)
    await parent.wait_line(IS_UP, LONG)
    parent.signal(signal.SIGKILL)
    await parent.wait_closed(DEADLINE)
    assert "stopping: what is in hand is finished first" in parent.out
    assert place.quiet()
    parent.assert_no_traceback()


def test_no_data_directory_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    (tmp_path / "c.yaml").write_text("destinations: [{name: d, type: discard}]\nroutes: [{to: [d]}]\n")
    command = [sys.executable, "-m", "ops", "up", "--config", "c.yaml"]
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "is a file" in ended.stderr

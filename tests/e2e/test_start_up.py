"""What can be wrong when a service starts: one message that names the setting, exit code 1, no traceback."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Sequence

import pytest

from tests.support.fleet import Fleet, Fleets, Running, eventually
from tests.support.old_server import claiming
from tests.support.processes import Process, Processes
from tests.support.servers import Server, free_port

SERVICES = ("ingest", "dispatcher")


async def start(fleet: Fleet) -> list[Process]:
    """Both services, whatever becomes of them."""
    config, started = fleet.config(), fleet.processes
    return [
        await started.ingest(config, fleet.environ("ingest", None)),
        await started.dispatcher(config, fleet.environ("dispatcher", None)),
    ]


async def complaints(processes: list[Process], services: Sequence[str] = SERVICES) -> list[str]:
    """The one message of each process, which ends with 1; its log lines aside."""
    told = []
    for process, service in zip(processes, services, strict=True):
        assert await process.wait_exit() == 1, process.text
        process.assert_no_traceback()
        assert process.out == []
        told.append("\n".join(line for line in process.err if not line.startswith("{")))
        assert told[-1].startswith(f"redispatch {service}: "), told
        told[-1] = told[-1].removeprefix(f"redispatch {service}: ")
    return told


async def test_wrong_configuration(processes: Processes) -> None:
    config = processes.config(
        {
            "redis": {"url": "http://127.0.0.1"},
            "dispatcher": {"visibility_timeout": "soon"},
            "destinations": [{"name": "hook", "type": "webhook"}],
            "routes": [{"to": ["hok"]}],
        }
    )
    both = [await processes.ingest(config), await processes.dispatcher(config)]
    ingest, dispatcher = await complaints(both)
    for told in (ingest, dispatcher):
        assert told.startswith("the configuration can't be used\n")
        for place in ("redis.url", "dispatcher.visibility_timeout", "routes[0].to"):
            assert f"{place}" in told, told
    assert "destinations[0].url" in dispatcher
    assert "destinations" not in ingest  # it delivers nothing, and needs nobody's secrets


@pytest.mark.parametrize("workers", [1, 2])
async def test_ingest_listens_to_nobody_unasked(processes: Processes, workers: int) -> None:
    """A dispatcher does not care."""
    process = await processes.ingest(
        processes.config({"ingest": {"listen": "0.0.0.0:0", "workers": workers}})
    )
    [told] = await complaints([process], ["ingest"])
    assert told.startswith("ingest.listen: anybody who reaches this address may send alerts")
    assert "\n" not in told


async def test_no_configuration(processes: Processes) -> None:
    nowhere = processes.directory / "nowhere.yaml"
    for told in await complaints([await processes.ingest(nowhere), await processes.dispatcher(nowhere)]):
        assert "nowhere.yaml" in told


async def test_a_configuration_named_on_the_command_line(processes: Processes) -> None:
    words = ("--config", "elsewhere.yaml")
    both = [await processes.start(sys.executable, "-m", service, *words) for service in SERVICES]
    for told in await complaints(both):
        assert "elsewhere.yaml" in told


@pytest.mark.parametrize("service", SERVICES)
async def test_a_command_line_that_makes_no_sense(processes: Processes, service: str) -> None:
    process = await processes.start(sys.executable, "-m", service, "--confg", "elsewhere.yaml")
    assert await process.wait_exit() == 2
    assert f"usage: python -m {service}" in process.text
    process.assert_no_traceback()


async def test_a_taken_port(fleets: Fleets, valkey: Server) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        fleet = await fleets(valkey, ingest={"listen": listen}, dispatcher={"listen": listen})
        for told, service in zip(await complaints(await start(fleet)), SERVICES, strict=True):
            assert told == f"can't listen on {listen} (address already in use): see {service}.listen"


async def test_no_redis(fleets: Fleets, valkey: Server) -> None:
    """Both wait for it, answering 503, and then give up."""
    url = f"redis://:hidden@127.0.0.1:{free_port()}/0"
    fleet = await fleets(valkey, through=url)
    ingest, dispatcher = await asyncio.gather(fleet.ingest(ready=False), fleet.dispatcher(ready=False))
    status, told = await fleet.send(ingest, fleet.alert())
    assert (status, told["detail"]) == (503, "Redis has not answered yet")
    for running in (ingest, dispatcher):
        assert await running.status("/healthz") == 200
        assert await running.status("/readyz") == 503
    shown = url.replace("hidden", "***")
    advice = "is it running? The address is redis.url or REDISPATCH_REDIS_URL"
    for message in await complaints([ingest.process, dispatcher.process]):
        assert message == f"Redis at {shown} can't be reached (connection refused): {advice}"


async def test_told_to_stop_while_waiting_for_redis(fleets: Fleets, valkey: Server) -> None:
    fleet = await fleets(valkey, through=f"redis://127.0.0.1:{free_port()}/0")
    for running in await asyncio.gather(fleet.ingest(ready=False), fleet.dispatcher(ready=False)):
        assert await running.process.stop() == 0
        assert all(line.startswith("{") for line in running.process.err), running.process.text


async def test_redis_that_comes_later(fleets: Fleets, new_server: Callable[..., Server]) -> None:
    server = new_server()
    server.kill()
    fleet = await fleets(server)
    ingest, dispatcher = await asyncio.gather(fleet.ingest(ready=False), fleet.dispatcher(ready=False))
    assert (await fleet.send(ingest, fleet.alert()))[0] == 503
    server.restart()
    await ingest.process.wait_line('"event":"redis_seen"')
    await dispatcher.process.wait_line('"event":"delivering"')
    await fleet.post(ingest)
    await fleet.settled()


async def test_a_user_that_lacks_something(fleets: Fleets, new_server: Callable[..., Server]) -> None:
    server = new_server()
    for name in ("ingest", "dispatcher"):
        server.cli("ACL", "SETUSER", name, "-xadd", "-xlen")
    fleet = await fleets(server)
    for name, told in zip(("ingest", "dispatcher"), await complaints(await start(fleet)), strict=True):
        assert f"redis://{name}:***@" in told
        assert told.endswith(f"lacks XADD, XLEN: docs/acl.md shows what {name} needs")


@pytest.mark.parametrize("password", ["", ":wrong@"], ids=["no password", "a wrong password"])
async def test_a_password_that_is_refused(
    fleets: Fleets, new_server: Callable[..., Server], password: str
) -> None:
    server = new_server()
    server.cli("ACL", "SETUSER", "default", ">right")
    fleet = await fleets(server, through=server.url.replace("//", f"//{password}").removesuffix("/0"))
    for told in await complaints(await start(fleet)):
        assert "refuses user or password" in told
        assert "REDISPATCH_REDIS_URL" in told
        assert "wrong@" not in told


async def test_a_server_below_the_floor(fleets: Fleets, valkey: Server) -> None:
    async with claiming("6.2.0") as url:
        fleet = await fleets(valkey, through=url)
        for told in await complaints(await start(fleet)):
            assert told == (
                f"redis 6.2.0 at {url} is too old: redispatch needs Redis 7.0, Valkey 7.2 or newer"
            )


async def test_a_server_that_may_evict(fleets: Fleets, valkey: Server) -> None:
    valkey.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    fleet = await fleets(valkey)
    for told in await complaints(await start(fleet)):
        assert "maxmemory-policy allkeys-lru" in told
        assert "redis.allow_eviction" in told


async def test_what_is_allowed_and_not_safe_is_said_loudly(fleets: Fleets, valkey: Server) -> None:
    valkey.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    fleet = await fleets(valkey, redis={"allow_eviction": True})
    ingest, dispatcher = await fleet.both()
    for running in (ingest, dispatcher):
        told = [(line["level"], line["kind"]) for line in running.lines("redis_unsafe")]
        assert sorted(told) == [("warning", "eviction"), ("warning", "no_aof")]
        for kind in ("eviction", "no_aof"):
            assert await running.metric("redispatch_redis_unsafe", kind=kind) == 1
    await fleet.post(ingest)
    await fleet.settled()


async def test_a_safe_server_is_called_so(fleets: Fleets, new_server: Callable[..., Server]) -> None:
    fleet = await fleets(
        new_server("valkey", aof=True),
        redis={"timeout": "900ms"},  # shorter than the longest BLOCK
        dispatcher={"visibility_timeout": "60s"},
    )
    both = await fleet.both()
    for running in both:
        assert running.lines("redis_unsafe") == []
        assert await running.metric("redispatch_redis_unsafe") == 0

    async def waits_in_vain() -> bool:
        errors, calls = await _errors(both), fleet.calls("xread")
        await eventually(lambda: fleet.calls("xread") >= calls + 3, "the bell waited for again and again")
        return await _errors(both) == errors

    # Waiting as long as that BLOCK is no error either; that a busy machine stood still once would be one.
    await eventually(waits_in_vain, "three waits for the bell without an error")


async def _errors(services: Sequence[Running]) -> float:
    return sum([await running.metric("redispatch_redis_errors_total") for running in services])

"""The servers, the receiver, the proxy and the processes that other tests stand on."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import signal
import sys
import time
from collections.abc import Callable

import aiohttp
import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as Lost
from redis.exceptions import ResponseError

from tests.support.processes import Processes
from tests.support.proxy import Proxy
from tests.support.receiver import Answer, Receiver
from tests.support.servers import Pool, Server

SECRET = "whsec_" + base64.b64encode(b"a secret of the tests").decode()


async def test_each_server_answers_and_is_empty(server: Server, redis: Redis) -> None:
    assert await redis.dbsize() == 0
    await redis.set("left", "behind")
    assert server.cli("GET", "left") == "behind"
    assert ("cluster_enabled:1" in server.cli("INFO", "cluster")) == (server.kind == "cluster")


async def test_cluster_refuses_to_cross_slots(server: Server, redis: Redis) -> None:
    crossing = redis.eval(
        "return {redis.call('SET', KEYS[1], 1), redis.call('SET', KEYS[2], 1)}", 2, "a", "b"
    )
    if server.kind == "cluster":
        with pytest.raises(ResponseError, match="slot"):
            await crossing
    else:
        await crossing


def test_pool_undoes_what_a_test_configured(pool: Pool) -> None:
    server = pool.get("valkey")
    before = server.cli("CONFIG", "GET", "maxmemory")
    server.cli("CONFIG", "SET", "maxmemory", "9mb")
    server.freeze()
    assert pool.get("valkey").cli("CONFIG", "GET", "maxmemory") == before
    server.kill()
    assert pool.get("valkey").cli("PING") == "PONG"


@pytest.mark.parametrize("kind", ["valkey", "redis", "cluster"])
def test_data_outlives_a_kill(new_server: Callable[..., Server], kind: str) -> None:
    server = new_server(kind, aof=True)
    server.cli("CONFIG", "SET", "appendfsync", "always")
    server.cli("SET", "kept", "1")
    port, first = server.port, server.pid
    server.restart()
    assert (server.port, server.cli("GET", "kept")) == (port, "1")
    assert server.pid != first


async def test_unix_socket(new_server: Callable[..., Server], connected: Callable[[str], Redis]) -> None:
    assert await connected(new_server().unix_url).ping()


async def test_proxy_loses_the_reply_but_not_the_command(
    valkey: Server, proxied: Callable[[Server], Proxy], connected: Callable[[str], Redis]
) -> None:
    proxy = await proxied(valkey).start()
    through = connected(proxy.url)
    await through.set("marked", "0")
    proxy.lose_reply(b"marked")
    assert await through.ping()
    with pytest.raises(Lost):
        await through.incr("marked")
    await proxy.wait_lost()
    assert valkey.cli("GET", "marked") == "1"
    assert await through.incr("marked") == 2
    assert proxy.connections == 2


async def test_proxy_freezes_refuses_and_breaks(
    valkey: Server, proxied: Callable[[Server], Proxy], connected: Callable[[str], Redis]
) -> None:
    proxy = await proxied(valkey).start()
    through = connected(proxy.url)
    proxy.freeze()
    late = asyncio.ensure_future(through.ping())
    await proxy.wait_connections(1)
    assert not late.done()
    proxy.thaw()
    assert await late
    proxy.refuse()
    with pytest.raises(Lost):
        await through.ping()
    proxy.refuse(False)
    proxy.break_after(3)
    with pytest.raises(Lost):
        await through.ping()
    assert await through.ping()
    valkey_gone = Proxy("127.0.0.1", 1)
    async with valkey_gone:
        with pytest.raises(Lost):
            await connected(valkey_gone.url).ping()


async def test_receiver_answers_as_scripted(receiver: Receiver) -> None:
    go = asyncio.Event()
    receiver.answers += [
        Answer(500, {"Retry-After": "3"}, b"no"),
        Answer(disconnect=True),
        Answer(204, until=go),
    ]
    async with aiohttp.ClientSession() as session:
        async with session.post(receiver.url + "x", data=b"1") as answer:
            assert (answer.status, answer.headers["Retry-After"], await answer.read()) == (500, "3", b"no")
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await session.post(receiver.url, data=b"2")
        late = asyncio.create_task(session.post(receiver.url, data=b"3", headers={"webhook-id": "k"}))
        await receiver.wait_for(3)
        assert not late.done()
        go.set()
        assert (await late).status == 204
    assert [request.body for request in receiver.requests] == [b"1", b"2", b"3"]
    assert receiver.accepted == {"k": 1}
    with pytest.raises(AssertionError, match="3 requests came"):
        await receiver.wait_for(4, deadline=0.01)


@pytest.mark.parametrize("signed", [b"{}", b"{ }"])
async def test_receiver_checks_signatures(signed: bytes) -> None:
    now = str(int(time.time()))
    mac = hmac.new(base64.b64decode(SECRET[6:]), f"k.{now}.".encode() + signed, hashlib.sha256).digest()
    headers = {
        "webhook-id": "k",
        "webhook-timestamp": now,
        "webhook-signature": "v1,bm8= v1," + base64.b64encode(mac).decode(),
    }
    async with Receiver(secrets=(SECRET,)) as receiver, aiohttp.ClientSession() as session:
        await session.post(receiver.url, data=b"{}", headers=headers)
        if signed == b"{}":
            await receiver.wait_for(1)
        else:
            with pytest.raises(AssertionError, match="matches no secret"):
                await receiver.wait_for(1)


async def test_processes_are_watched_and_ended(processes: Processes) -> None:
    program = "import sys, signal; print('up'); print('told', file=sys.stderr); signal.pause()"
    process = await processes.start(sys.executable, "-c", program)
    assert await process.wait_line("^up") == "up"
    assert await process.wait_line("told") == "told"
    with pytest.raises(AssertionError, match="did not come"):
        await process.wait_line("never", deadline=0.01)
    process.assert_no_traceback()
    assert await process.stop() == -signal.SIGTERM
    with pytest.raises(AssertionError, match="ended with -15"):
        await process.wait_line("never")
    failing = await processes.start(sys.executable, "-c", "1 / 0")
    assert await failing.wait_exit() == 1
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        failing.assert_no_traceback()
    await processes.start(sys.executable, "-c", "import signal; signal.pause()")  # left to the fixture

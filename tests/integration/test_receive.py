"""`redispatch receive` as a process: prints, fails when told to, stops when told to."""

from __future__ import annotations

import signal

import aiohttp

from tests.support.processes import Processes
from tests.support.servers import free_port


async def test_prints_and_fails_as_told(processes: Processes) -> None:
    listen = f"127.0.0.1:{free_port()}"
    receiver = await processes.redispatch("receive", "--listen", listen, "--fail-first", "1")
    await receiver.wait_line(f"listens on http://{listen}/")
    url = f"http://{listen}/hook"
    async with aiohttp.ClientSession() as session:

        async def post(to: str, **more: str) -> int:
            async with session.post(to, json={"data": {"name": "disk"}}, headers=more) as answer:
                return answer.status

        assert [await post(url), await post(url)] == [500, 200]
        assert await post(f"http://{listen}/_fail?status=503&count=1") == 200
        assert [await post(url), await post(url)] == [503, 200]
        assert await post(f"http://{listen}/_fail?status=no") == 400
        assert await post(url, **{"webhook-id": "some-id"}) == 200
    await receiver.wait_line(r"POST /hook -> 200  disk on , some-id \(signature not checked")
    second = await processes.redispatch("receive", "--listen", listen)
    assert await second.wait_exit() == 1
    assert second.err == [f"Error: receiver can't listen on {listen} (address already in use): see --listen"]
    receiver.signal(signal.SIGINT)
    assert await receiver.wait_exit() == 0
    receiver.assert_no_traceback()

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import uvloop
from aiohttp import ThreadedResolver

from common import __version__
from common.outcomes import Outcome, OutcomeKind
from common.units import Duration, Secret
from dispatcher import guard
from dispatcher.destinations.base import Unusable
from dispatcher.destinations.deadline import Deadlines, Limit
from dispatcher.destinations.kinds import make
from dispatcher.destinations.webhook import Webhook
from ops import signature
from tests.support.deliveries import alert, delivery, webhook
from tests.support.raw import OK, RawRequest, RawServer, answering
from tests.support.receiver import Receiver

New = Callable[..., Webhook]
DEADLINE = 30.0


@asynccontextmanager
async def webhooks() -> AsyncIterator[New]:
    made: list[Webhook] = []

    def build(url: str, **settings: Any) -> Webhook:
        one = make(webhook(url, **settings))
        assert isinstance(one, Webhook)
        made.append(one)
        return one

    yield build
    for one in made:
        await one.close()


@pytest.fixture
async def new() -> AsyncIterator[New]:
    """`new(url, **settings)`: a webhook, closed when the test is over."""
    async with webhooks() as build:
        yield build


async def once(one: Webhook, **of: Any) -> Outcome:
    async with asyncio.timeout(DEADLINE):
        return await one.deliver(delivery(**of))


def reply(status: int, headers: str = "", body: bytes = b"") -> bytes:
    head = f"HTTP/1.1 {status} Whatever\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


async def answered(new: New, raw: bytes, **settings: Any) -> Outcome:
    async with RawServer(answering(raw)) as server:
        return await once(new(server.url, **settings))


async def test_what_arrives(new: New, receiver: Receiver) -> None:
    secrets = ["whsec_" + "A" * 32, "whsec_" + "B" * 32]
    one = new(
        receiver.url + "a%20b?x=1#part",
        secrets=[Secret(each) for each in secrets],
        headers={"X-Team": Secret("päd 漢"), "User-Agent": Secret("ours")},
    )
    assert await once(one, key="db1:disk:9", attempt=2) == Outcome(OutcomeKind.DELIVERED, 200)
    (request,) = receiver.requests
    assert (request.method, request.path) == ("POST", "/a%20b?x=1")
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Accept-Encoding"] == "identity"
    assert request.headers["User-Agent"] == "ours"
    assert request.headers["X-Team"] == "päd 漢"
    assert request.id == request.json()["data"]["key"] == "db1:disk:9"
    assert request.json()["data"]["attempt"] == 2
    for secret in secrets:
        assert signature.fault(request.headers, request.body, [secret], request.at) is None


async def test_what_arrives_without_secrets_and_headers(new: New, receiver: Receiver) -> None:
    await once(new(receiver.url))
    (request,) = receiver.requests
    assert "webhook-signature" not in request.headers
    assert request.headers["User-Agent"] == f"redispatch/{__version__}"
    assert "Cookie" not in request.headers
    assert "Authorization" not in request.headers


async def test_user_and_password_of_the_url_become_a_header(new: New, receiver: Receiver) -> None:
    await once(new(receiver.url.replace("//", "//me:p%40ss@")))
    assert receiver.requests[0].headers["Authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()


KINDS = {
    OutcomeKind.DELIVERED: [200, 201, 202, 204, 299],
    OutcomeKind.FAILED: [300, 301, 302, 303, 304, 307, 308, 408, 409, 425, 500, 502, 503, 504, 599],
    OutcomeKind.THROTTLED: [429],
    OutcomeKind.GONE: [401, 403, 404, 410],
    OutcomeKind.REJECTED: [400, 402, 405, 406, 413, 415, 418, 422, 451],
}


@pytest.mark.parametrize(("kind", "status"), [(kind, each) for kind, all_ in KINDS.items() for each in all_])
async def test_outcome_by_status(new: New, kind: OutcomeKind, status: int) -> None:
    outcome = await answered(new, reply(status))
    assert (outcome.kind, outcome.status) == (kind, status)
    assert outcome.error == ("" if kind is OutcomeKind.DELIVERED else f"HTTP {status}")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("3", 3.0), ("0", 0.0), ("1.5", 1.5), ("-1", 0.0), ("999999999", 999999999.0), (" 7 ", 7.0)]
    + [("Wed, 21 Oct 2015 07:28:00 GMT", 0.0)]
    + [
        (junk, None)
        for junk in ("abc", "", "nan", "inf", "1e3", "٣", "9" * 400, "Wed, 99 Oct 2037 07:28:00 GMT")
    ],
)
async def test_retry_after(new: New, value: str, seconds: float | None) -> None:
    outcome = await answered(new, reply(429, f"Retry-After: {value}\r\n"))
    assert (outcome.kind, outcome.retry_after) == (OutcomeKind.THROTTLED, seconds)
    away = await answered(new, reply(503, f"Retry-After: {value}\r\n"))
    assert away.kind is (OutcomeKind.FAILED if seconds is None else OutcomeKind.THROTTLED)
    assert away.retry_after == seconds


async def test_retry_after_as_a_date_and_twice(new: New) -> None:
    later = "Thu, 01 Jan 2099 00:00:00 GMT"
    outcome = await answered(new, reply(429, f"Retry-After: {later}\r\n"))
    assert outcome.retry_after is not None
    assert outcome.retry_after > 365 * 86400
    twice = await answered(new, reply(429, "Retry-After: 3\r\nRetry-After: 5\r\nRetry-After: junk\r\n"))
    assert twice.retry_after == 5.0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_a_failure_and_nobody_goes_there(new: New, status: int) -> None:
    async with RawServer(answering(OK)) as land:
        to = f"http://user:hidden@127.0.0.1:{land.port}/land?token=hidden"
        outcome = await answered(new, reply(status, f"Location: {to}\r\n"))
    assert outcome == Outcome(
        OutcomeKind.FAILED, status, f"HTTP {status}, redirect to 127.0.0.1 not followed"
    )
    assert land.connections == 0


@pytest.mark.parametrize(
    ("location", "named"), [("/login", "the same host"), ("http://[::1", "an unreadable address")]
)
async def test_odd_redirects(new: New, location: str, named: str) -> None:
    outcome = await answered(new, reply(302, f"Location: {location}\r\n"))
    assert outcome.error == f"HTTP 302, redirect to {named} not followed"


async def test_the_answers_text_is_kept_short_and_plain(new: New) -> None:
    text = b"line\r\nnext\x1b[31m \xff " + b"x" * 100_000
    outcome = await answered(new, reply(500, body=text))
    assert outcome.error.startswith("HTTP 500: line\\r\\nnext\\x1b[31m � xxx")
    assert len(outcome.error.encode()) <= 1024 + len("HTTP 500: ")


async def test_no_secret_in_an_error(new: New) -> None:
    async def echo(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(500, body=request.head))

    async with RawServer(echo) as server:
        url = server.url.replace("//", "//me:password-hidden@") + "/T00/path-hidden-000000?token=query-hidden"
        outcome = await once(new(url, headers={"X-Key": Secret("Bearer header-hidden")}))
        refused = await once(new(url, allow_private=False))
    assert "POST ***" in outcome.error
    basic = base64.b64encode(b"me:password-hidden").decode()
    for error in (outcome.error, refused.error):
        assert "hidden" not in error
        assert basic not in error


async def test_a_huge_answer_is_not_read(new: New) -> None:
    gone = asyncio.Event()

    async def endless(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
        except ConnectionError:
            gone.set()
            raise

    async with RawServer(endless) as server, asyncio.timeout(DEADLINE):
        assert (await once(new(server.url))).kind is OutcomeKind.DELIVERED
        await gone.wait()


async def test_a_compressed_bomb_stays_compressed(new: New) -> None:
    bomb = gzip.compress(b"0" * 50_000_000)
    assert len(bomb) < 100_000
    outcome = await answered(new, reply(500, "Content-Encoding: gzip\r\n", bomb))
    assert outcome.kind is OutcomeKind.FAILED
    assert "0000" not in outcome.error


async def test_one_connection_is_used_again(new: New) -> None:
    async with RawServer(answering(OK)) as server:
        one = new(server.url)
        for _ in range(5):
            assert (await once(one)).kind is OutcomeKind.DELIVERED
    assert server.connections == 1


def on_second(then: Callable[[asyncio.StreamWriter], None]) -> Callable[..., Awaitable[None]]:
    """The first request on each connection is answered, the second meets `then`."""

    async def handle(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        if request.number == 1:
            writer.write(OK)
        else:
            then(writer)

    return handle


def reset(writer: asyncio.StreamWriter) -> None:
    linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # on, 0 s: RST instead of FIN
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


@pytest.mark.parametrize("drop", [asyncio.StreamWriter.close, reset])
async def test_a_used_connection_that_was_dropped_is_replaced_at_once(
    new: New, drop: Callable[[asyncio.StreamWriter], None]
) -> None:
    async with RawServer(on_second(drop)) as server:
        one = new(server.url)
        assert await once(one, key="first") == Outcome(OutcomeKind.DELIVERED, 200)
        assert await once(one, key="second", attempt=1) == Outcome(OutcomeKind.DELIVERED, 200)
    assert [(each.connection, each.number) for each in server.requests] == [(1, 1), (1, 2), (2, 1)]
    assert server.requests[1].body == server.requests[2].body


async def test_the_replacement_is_not_used_again(new: New) -> None:
    async with RawServer(on_second(asyncio.StreamWriter.close)) as server:
        one = new(server.url)
        outcomes = [await once(one) for _ in range(6)]
    assert outcomes == [Outcome(OutcomeKind.DELIVERED, 200)] * 6


async def test_only_once_more(new: New) -> None:
    async def handle(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        if len(server.requests) == 1:
            writer.write(OK)
        else:
            writer.close()

    async with RawServer(handle) as server:
        one = new(server.url)
        await once(one)
        outcome = await once(one)
    assert outcome.kind is OutcomeKind.CONNECTION
    assert len(server.requests) == 3


async def test_a_new_connection_that_is_dropped_is_a_failure(new: New) -> None:
    async with RawServer(on_first_drop) as server:
        outcome = await once(new(server.url))
    where = f"127.0.0.1:{server.port}"
    assert outcome == Outcome(
        OutcomeKind.CONNECTION, error=f"connection to {where} lost: ServerDisconnectedError"
    )
    assert len(server.requests) == 1


async def on_first_drop(request: RawRequest, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def test_dropped_in_the_middle_of_the_answer_is_not_free(new: New) -> None:
    def partly(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Le")
        writer.close()

    async with RawServer(on_second(partly)) as server:
        one = new(server.url)
        await once(one)
        assert (await once(one)).kind is OutcomeKind.CONNECTION
    assert len(server.requests) == 2


@pytest.mark.parametrize("status", [200, 500])
async def test_the_status_counts_when_the_body_breaks_off(new: New, status: int) -> None:
    async def cut(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 100\r\n\r\nhalf".encode())
        writer.close()

    async with RawServer(cut) as server:
        outcome = await once(new(server.url))
    assert outcome.status == status
    assert outcome.error == ("" if status == 200 else "HTTP 500: half")


async def hang(request: RawRequest, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def test_no_answer_in_time(new: New) -> None:
    async with RawServer(hang) as server:
        outcome = await once(new(server.url, timeout=Duration(1)))  # by then it is connected
    assert outcome == Outcome(OutcomeKind.TIMEOUT, error=f"timeout waiting for 127.0.0.1:{server.port}")


async def test_the_time_is_for_both_tries(new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[Limit] = []
    real = Deadlines.limit

    def limit(deadlines: Deadlines) -> Limit:
        limits.append(real(deadlines))
        return limits[-1]

    monkeypatch.setattr(Deadlines, "limit", limit)

    async def handle(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        if len(server.requests) == 1:
            writer.write(OK)
        elif len(server.requests) == 2:
            writer.close()
        else:
            await hang(request, writer)

    async with RawServer(handle) as server:
        one = new(server.url, timeout=Duration(1))
        await once(one)
        assert (await once(one)).kind is OutcomeKind.TIMEOUT
    assert len(server.requests) == 3
    assert [limit.over for limit in limits] == [False, True]


@pytest.mark.parametrize(("status", "kind"), [(200, OutcomeKind.DELIVERED), (500, OutcomeKind.FAILED)])
async def test_a_body_that_never_ends_costs_the_timeout_and_no_more(
    new: New, status: int, kind: OutcomeKind
) -> None:
    async def slow(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 100\r\n\r\nhalf".encode())
        await hang(request, writer)

    async with RawServer(slow) as server:
        outcome = await once(new(server.url, timeout=Duration(1)))
    assert (outcome.kind, outcome.status) == (kind, status)


async def test_a_connection_that_is_never_taken(new: New) -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in (first, second):  # the queue of a listener that accepts nothing
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        port = full.getsockname()[1]
        outcome = await once(
            new(f"http://127.0.0.1:{port}/", timeout=Duration(5), connect_timeout=Duration(0.1))
        )
    assert outcome == Outcome(OutcomeKind.TIMEOUT, error=f"timeout connecting to 127.0.0.1:{port}")


async def test_nobody_listens(new: New) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    outcome = await once(new(f"http://127.0.0.1:{port}/hidden?token=hidden"))
    assert outcome.kind is OutcomeKind.CONNECTION
    assert outcome.error.startswith(f"cannot connect to 127.0.0.1:{port}: ")
    assert "hidden" not in outcome.error


async def test_an_unknown_name(new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(ThreadedResolver, "resolve", unknown)
    outcome = await once(new("http://nowhere.example/", allow_private=False))
    assert outcome == Outcome(
        OutcomeKind.CONNECTION, error="cannot connect to nowhere.example:80: Name or service not known"
    )


NO_NAMES = ["x" * 64 + ".example", "x" * 300, "a..b"]


@pytest.mark.parametrize("host", NO_NAMES)
async def test_a_name_that_is_none(new: New, host: str) -> None:
    try:
        outcome = await once(new(f"http://{host}/", allow_private=False))
    except Unusable:
        outcome = Outcome(OutcomeKind.CONNECTION, error="so odd that it is no URL")
    assert outcome.kind is OutcomeKind.CONNECTION
    assert outcome.error


async def test_tls_that_is_none(new: New) -> None:
    async with RawServer(answering(OK)) as server:
        outcome = await once(new(server.url.replace("http:", "https:"), timeout=Duration(1)))
    assert outcome.kind in (OutcomeKind.CONNECTION, OutcomeKind.TIMEOUT)


@pytest.mark.parametrize(
    "raw", [b"SSH-2.0-OpenSSH_9\r\n\r\n", reply(200, "X-Long: " + "x" * 70_000 + "\r\n")]
)
async def test_an_answer_that_is_not_http(new: New, raw: bytes) -> None:
    outcome = await answered(new, raw)
    assert outcome.kind is OutcomeKind.FAILED
    assert outcome.status is None
    assert "not HTTP" in outcome.error


SPELLINGS = [
    *("127.0.0.1", "127.0.0.2", "0.0.0.0", "user:pw@127.0.0.1", "localhost", "LOCALHOST", "[::1]", "[::]"),
    *("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"),
    *("[fe80::1%25lo]", "0x7f000001", "0x7f.1", "0177.0.0.1", "2130706433", "127.1", "0", "①②⑦.⓪.⓪.①"),
    *("127。0。0。1", "169.254.169.254", "0xa9fea9fe", "10.0.0.1"),
]


@pytest.mark.parametrize("host", SPELLINGS)
async def test_no_spelling_gets_past_the_guard(new: New, host: str) -> None:
    async with RawServer(answering(OK)) as server:
        try:
            outcome = await once(new(f"http://{host}:{server.port}/", allow_private=False))
        except Unusable:
            outcome = Outcome(OutcomeKind.REFUSED, error="so odd that it is no URL")
        assert outcome.kind is OutcomeKind.REFUSED, outcome
        assert outcome.error
    assert server.connections == 0


async def test_the_guard_looks_at_every_connection_and_lookups_are_cached(
    new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups: list[object] = []

    async def local(_: object, host: str, port: int, family: int) -> list[dict[str, object]]:
        lookups.append(host)
        return [
            {"hostname": host, "host": "127.0.0.1", "port": port, "family": family, "proto": 6, "flags": 0}
        ]

    async def once_each(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(200, "Connection: close\r\n"))

    async with RawServer(once_each) as server:
        monkeypatch.setattr(ThreadedResolver, "resolve", local)
        guarded = new(f"http://inside.example:{server.port}/", allow_private=False)
        outcomes = [await once(guarded) for _ in range(2)]
        assert server.connections == 0
        assert all(outcome.kind is OutcomeKind.REFUSED for outcome in outcomes)
        assert "127.0.0.1 is refused (loopback)" in outcomes[0].error
        lookups.clear()
        allowed = new(f"http://inside.example:{server.port}/")
        assert [(await once(allowed)).kind for _ in range(3)] == [OutcomeKind.DELIVERED] * 3
        assert (server.connections, lookups) == (3, ["inside.example"])


async def test_a_name_is_looked_up_again_when_its_time_is_over(
    new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter(["127.0.0.1", "127.0.0.1", "10.0.0.7"])

    async def moving(_: object, host: str, port: int, family: int) -> list[dict[str, object]]:
        where = {"hostname": host, "host": next(found), "port": port, "proto": 6, "flags": 0}
        return [where | {"family": socket.AF_INET}]

    monkeypatch.setattr("dispatcher.destinations.session.DNS_TTL", -1)  # each is over at once
    monkeypatch.setattr(ThreadedResolver, "resolve", moving)
    monkeypatch.setattr(guard, "why_refused", {"127.0.0.1": None, "10.0.0.7": "private"}.get)
    async with RawServer(answering(reply(200, "Connection: close\r\n"))) as server:
        one = new(f"http://moving.example:{server.port}/", allow_private=False)
        outcomes = [await once(one) for _ in range(3)]
    assert [outcome.kind for outcome in outcomes[:2]] == [OutcomeKind.DELIVERED] * 2
    assert outcomes[2].kind is OutcomeKind.REFUSED
    assert "10.0.0.7 is refused (private)" in outcomes[2].error


async def test_no_more_connections_than_in_flight(new: New) -> None:
    full, release = asyncio.Event(), asyncio.Event()

    async def held(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        if len(server.requests) == 2:
            full.set()
        await release.wait()
        writer.write(OK)

    async with RawServer(held) as server, asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
        one = new(server.url, max_in_flight=2)
        tasks = [group.create_task(once(one, key=str(n))) for n in range(6)]
        await full.wait()
        assert server.connections == 2
        release.set()
    assert [task.result().kind for task in tasks] == [OutcomeKind.DELIVERED] * 6
    assert server.connections == 2


async def test_cookies_are_not_kept(new: New) -> None:
    async with RawServer(answering(reply(200, "Set-Cookie: a=b\r\n"))) as server:
        one = new(server.url)
        await once(one)
        await once(one)
    assert b"cookie" not in server.requests[1].head.lower()


async def test_a_proxy_in_the_environment_is_not_used(new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert (await answered(new, OK)).kind is OutcomeKind.DELIVERED


@pytest.mark.parametrize("key", ["a\r\nX-Evil: 1", "a\x00", "päd", ""])
async def test_a_key_that_fits_no_header_is_a_render_outcome(new: New, key: str) -> None:
    async with RawServer(answering(OK)) as server:
        outcome = await once(new(server.url), key=key)
    assert outcome == Outcome(
        OutcomeKind.RENDER, error="the request can't be built: the key does not fit into a header"
    )
    assert server.connections == 0


async def test_hostile_text_stays_in_the_body(new: New) -> None:
    text = "a\r\nX-Evil: 1\r\n\r\n" + "x" * 20_000
    async with RawServer(answering(OK)) as server:
        outcome = await once(new(server.url), of=alert(host=text, name=text))
    assert outcome.kind is OutcomeKind.DELIVERED
    assert b"X-Evil" not in server.requests[0].head
    assert json.loads(server.requests[0].body)["data"]["host"] == text


async def test_a_body_above_a_mebibyte(new: New) -> None:
    large = alert(summary="x" * 1_100_000)
    # aiohttp warns of one that is handed over as bytes, and a warning is an error here.
    async with RawServer(answering(reply(413, body=b"too large"))) as server:
        outcome = await once(new(server.url), of=large)
    assert outcome == Outcome(OutcomeKind.REJECTED, 413, "HTTP 413: too large")
    assert json.loads(server.requests[0].body)["data"]["summary"] == large.summary


async def test_a_cancelled_attempt_is_gone(new: New) -> None:
    started = asyncio.Event()

    async def handle(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        started.set()
        await hang(request, writer)

    async with RawServer(handle) as server, asyncio.timeout(DEADLINE):
        task = asyncio.create_task(once(new(server.url)))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_closing_ends_what_is_under_way(new: New) -> None:
    second = asyncio.Event()

    async def handle(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        if request.number == 1:
            writer.write(OK)
        else:
            second.set()
            await hang(request, writer)

    async with RawServer(handle) as server, asyncio.timeout(DEADLINE):
        one = new(server.url)
        await once(one)
        task = asyncio.create_task(once(one))
        await second.wait()
        await one.close()
        assert (await task).kind is OutcomeKind.CONNECTION
    assert server.connections == 1


ON_UVLOOP: list[Callable[[New], Awaitable[None]]] = [
    partial(test_a_used_connection_that_was_dropped_is_replaced_at_once, drop=asyncio.StreamWriter.close),
    partial(test_a_used_connection_that_was_dropped_is_replaced_at_once, drop=reset),
    test_only_once_more,
    test_a_new_connection_that_is_dropped_is_a_failure,
    test_dropped_in_the_middle_of_the_answer_is_not_free,
    partial(test_the_status_counts_when_the_body_breaks_off, status=500),
    test_a_huge_answer_is_not_read,
    test_no_answer_in_time,
    test_nobody_listens,
    test_tls_that_is_none,
    test_a_cancelled_attempt_is_gone,
    test_closing_ends_what_is_under_way,
    *(partial(test_no_spelling_gets_past_the_guard, host=host) for host in SPELLINGS),
    *(partial(test_a_name_that_is_none, host=host) for host in NO_NAMES),
]


@pytest.mark.parametrize("case", ON_UVLOOP)
def test_the_same_on_uvloop(case: Callable[[New], Awaitable[None]]) -> None:
    """It carries the dispatcher, and has sockets, lookups and errors of its own."""

    async def run() -> None:
        async with webhooks() as build:
            await case(build)

    uvloop.run(run())

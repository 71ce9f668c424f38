"""What ingest answers over HTTP; what lies behind it is played by a double (`tests/support/ingest.py`)."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import zlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import aiohttp
import pytest
from prometheus_client import generate_latest

from common.http import Site
from common.listen import CannotListen, serve
from common.settings import Ingest
from common.units import Size
from ingest.metrics import Metrics
from tests.support.ingest import Served, served
from tests.support.raw import Reply, Wire

zipped = partial(gzip.compress, mtime=0)  # names of tests are the same in each process that runs them

ALERT = {"host": "web-1", "name": "disk-full", "timestamp": 1_772_439_277}
READING = b'{"host":"node-01","metric":"cpu","value":1.5,"timestamp":1772439270}'
JSON = {"Content-Type": "application/json"}
LINES = {"Content-Type": "application/x-ndjson"}
ZSTD = bytes.fromhex(  # of READING
    "28b52ffd20442102007b22686f7374223a226e6f64652d3031222c226d6574726963223a2263"
    "7075222c2276616c7565223a312e352c2274696d657374616d70223a313737323433393237307d"
)
SMALL = Ingest(max_body=Size(100_000), max_alert=Size(50_000))


Post = Callable[..., Any]


@pytest.fixture
async def site() -> AsyncIterator[Served]:
    async with served(SMALL, patience=2) as made:
        yield made


@pytest.fixture
async def post(site: Served) -> AsyncIterator[Post]:
    """`await post("/v1/alerts", body)`; a body that is not bytes goes as JSON."""
    async with aiohttp.ClientSession() as session:

        async def send(path: str, body: Any, headers: Any = JSON, method: str = "POST") -> Reply:
            raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            async with session.request(method, site.url + path, data=raw, headers=headers) as answer:
                return Reply(answer.status, dict(answer.headers), await answer.read())

        yield send


def is_problem(reply: Reply, status: int) -> bool:
    """RFC 9457, and with a reason."""
    body = reply.json
    return (
        reply.status == status == body["status"]
        and reply.headers["Content-Type"] == "application/problem+json"
        and {"type", "title", "detail"} <= set(body)
        and bool(body["detail"])
    )


async def test_an_alert_is_queued_and_its_repeat_a_duplicate(post: Post) -> None:
    first, second = await post("/v1/alerts", ALERT), await post("/v1/alerts", ALERT)
    assert (first.status, second.status) == (201, 200)
    assert first.json == {
        "key": "web-1:disk-full:1772439277000",
        "status": "queued",
        "destinations": ["pager"],
        "dead": ["chat"],
    }
    assert second.json == {**first.json, "status": "duplicate"}


async def test_a_batch_is_counted(post: Post) -> None:
    other = {**ALERT, "host": "web-2"}
    fresh = await post("/v1/alerts", [ALERT, other, ALERT])
    assert (fresh.status, fresh.json) == (
        201,
        {"accepted": 2, "duplicates": 1, "stored": 0, "rejected": []},
    )
    assert (await post("/v1/alerts", [ALERT, other])).status == 200
    mixed = await post("/v1/alerts", [ALERT, {"host": "x"}])
    assert mixed.status == 207
    assert mixed.json["rejected"] == [{"index": 1, "error": "name: missing", "field": "name"}]
    assert (await post("/v1/alerts", [])).json["accepted"] == 0


async def test_lines_say_which_line(post: Post) -> None:
    good = json.dumps(ALERT).encode()
    reply = await post("/v1/alerts", good + b"\n\n{}\n", LINES)
    assert reply.status == 207
    [rejected] = reply.json["rejected"]
    assert (rejected["index"], rejected["line"]) == (1, 3)


async def test_all_invalid_is_400_and_stores_nothing(site: Served, post: Post) -> None:
    single = await post("/v1/alerts", {"host": 1, "name": "x"})
    assert is_problem(single, 400)
    assert single.json["errors"] == [{"index": 0, "field": "host", "error": "host: Expected str, got int"}]
    batch = await post("/v1/alerts", [{}, 7])
    assert is_problem(batch, 400)
    assert [one["index"] for one in batch.json["rejected"]] == [0, 1]
    assert site.memory.events == []


async def test_a_reading_is_stored_with_its_alerts(post: Post) -> None:
    quiet = await post("/v1/readings", READING)
    assert (quiet.status, quiet.json) == (201, {"status": "stored", "alerts": []})
    loud = await post("/v1/readings", {"host": "h", "metric": "disk", "percent": 100})
    assert [alert["status"] for alert in loud.json["alerts"]] == ["queued", "queued"]
    assert set(loud.json["alerts"][0]) == {"key", "status", "destinations", "dead"}
    batch = await post("/v1/readings", [{"host": "h", "metric": "disk", "percent": 100}, {}])
    assert (batch.status, batch.json["stored"], batch.json["duplicates"]) == (207, 1, 2)


async def test_what_cannot_be_stored_is_503_as_a_whole(site: Served, post: Post) -> None:
    site.memory.down = True
    for path, body in (
        ("/v1/alerts", ALERT),
        ("/v1/alerts", [ALERT, {}]),
        ("/v1/readings", READING),
        ("/v1/readings", [json.loads(READING), {}]),
    ):
        reply = await post(path, body)
        assert is_problem(reply, 503)
        assert reply.headers["Retry-After"] == "3"


async def test_an_unexpected_error_is_logged_and_not_told(
    site: Served, post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    site.memory.broken = True
    reply = await post("/v1/alerts", ALERT)
    assert is_problem(reply, 500)
    assert b"secret" not in reply.raw
    assert "request_failed" in caplog.messages


async def test_idempotency_key_becomes_the_key(site: Served, post: Post) -> None:
    headers = {**JSON, "Idempotency-Key": "run 7"}
    await post("/v1/alerts", {**ALERT, "status": "resolved"}, headers)
    await post("/v1/alerts", [ALERT, {}, ALERT], headers)
    await post("/v1/readings", {"host": "h", "metric": "disk", "value": 100}, headers)
    assert [event.key for event in site.memory.events] == [
        "id:anonymous:run~207:resolved",
        "id:anonymous:run~207:0",
        "id:anonymous:run~207:2",
        "id:anonymous:run~207:full",
        "id:anonymous:run~207:warm",
    ]


@pytest.mark.parametrize("value", ["", "x" * 257, "x" * 8000, "tab\there"])
async def test_an_idempotency_key_is_bounded(post: Post, value: str) -> None:
    assert is_problem(await post("/v1/alerts", ALERT, {**JSON, "Idempotency-Key": value}), 400)


async def test_repeated_idempotency_keys_must_agree(post: Post) -> None:
    base = [("Content-Type", "application/json"), ("Idempotency-Key", "a")]
    assert (await post("/v1/alerts", ALERT, [*base, ("Idempotency-Key", "a")])).status == 201
    assert is_problem(await post("/v1/alerts", ALERT, [*base, ("Idempotency-Key", "b")]), 400)


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content-Type": "text/plain"}, READING, 415),
        ({"Content-Type": "application/json; charset=utf-99"}, READING, 415),
        ({"Content-Type": "application/json; charset=iso-8859-1"}, READING.replace(b"01", b"\xf6"), 415),
        (JSON, READING.replace(b"01", b"\xf6"), 400),
        (JSON, b"\xef\xbb\xbf" + READING, 201),
        (JSON, READING + b"\r\n", 201),
        (JSON, READING.decode().encode("utf-16"), 400),
        (JSON, b"", 400),
        (JSON, b"[" * 20_000, 400),
        (JSON, READING[:-1] + b',"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}", 400),
        (JSON, READING.replace(b"01", b"\\u0000"), 400),
        (JSON, READING.replace(b"01", b"\\ud800"), 400),
        (JSON, READING.replace(b"1.5", b"9" * 400), 400),
        (JSON, READING.replace(b"1.5", b"1e400"), 400),
        (JSON, READING.replace(b"1.5", b'"NaN"'), 400),
        (JSON, READING + READING, 400),
        (JSON, READING + b"\x00", 400),
        (JSON, READING[:-1] + b',"labels":{"a":"' + b"x" * 60_000 + b'"}}', 413),
        (JSON, b" " * 100_001, 413),
        ({**JSON, "Content-Encoding": "identity"}, READING, 201),
        ({**JSON, "Content-Encoding": "gzip"}, zipped(READING), 201),
        ({**JSON, "Content-Encoding": "GZIP"}, zipped(READING), 201),
        ({**JSON, "Content-Encoding": "gzip"}, zipped(READING[:9]) + zipped(READING[9:]), 201),
        ({**JSON, "Content-Encoding": "gzip"}, zipped(READING)[:-6], 400),
        ({**LINES, "Content-Encoding": "gzip"}, zipped((READING + b"\n") * 9)[:-6], 400),
        ({**JSON, "Content-Encoding": "gzip"}, READING, 400),
        ({**JSON, "Content-Encoding": "gzip"}, zipped(bytes(5_000_000)), 413),
        ({**JSON, "Content-Encoding": "deflate"}, zlib.compress(READING), 201),
        ({**JSON, "Content-Encoding": "deflate"}, zlib.compress(READING)[2:-4], 201),
        ({**JSON, "Content-Encoding": "deflate"}, zipped(READING), 400),
        ({**JSON, "Content-Encoding": "zstd"}, ZSTD, 201),
        ({**JSON, "Content-Encoding": "ZSTD"}, ZSTD, 201),
        ({**JSON, "Content-Encoding": "zstd"}, ZSTD[:-1], 400),
        ({**JSON, "Content-Encoding": "zstd"}, b"garbage", 400),
        ({**JSON, "Content-Encoding": "gzip, gzip"}, zipped(zipped(READING)), 415),
        (
            [*JSON.items(), ("Content-Encoding", "gzip"), ("Content-Encoding", "zstd")],
            zipped(READING),
            415,
        ),
        ({**JSON, "Content-Encoding": "snappy"}, b"garbage", 415),
    ],
)
async def test_bodies(site: Served, post: Post, headers: dict[str, str], body: bytes, status: int) -> None:
    reply = await post("/v1/readings", body, headers)
    assert reply.status == status
    assert len(site.memory.readings) == (status == 201)
    if status != 201:
        assert is_problem(reply, status)


async def test_a_large_body_is_taken_and_one_that_is_too_large_is_not(post: Post) -> None:
    many = (READING + b"\n") * (99_000 // (len(READING) + 1))
    assert (await post("/v1/readings", many, LINES)).status == 201
    assert is_problem(await post("/v1/readings", many * 3, LINES), 413)
    packed = {**LINES, "Content-Encoding": "gzip"}
    assert (await post("/v1/readings", zipped(many, compresslevel=1), packed)).status == 201


async def test_unknown_paths_and_methods(post: Post) -> None:
    assert is_problem(await post("/v1/nothing", ALERT), 404)
    wrong = await post("/v1/alerts", None, method="GET")
    assert is_problem(wrong, 405)
    assert wrong.headers["Allow"] == "POST"
    assert (await post("/healthz", b"")).headers["Allow"] == "GET, HEAD"


async def test_probes(site: Served, post: Post) -> None:
    assert (await post("/healthz", None, method="GET")).status == 200
    assert (await post("/healthz", None, method="HEAD")).raw == b""
    assert (await post("/readyz", None, method="GET")).status == 200
    site.unready = "draining"
    assert is_problem(await post("/readyz", None, method="GET"), 503)
    assert (await post("/healthz", None, method="GET")).status == 200


async def test_metrics_count_requests_and_items(post: Post) -> None:
    await post("/v1/alerts", ALERT)
    await post("/v1/alerts", [ALERT, {}])
    await post("/v1/unheard-of", ALERT)
    text = (await post("/metrics", None, method="GET")).raw.decode()
    for line in (
        'redispatch_ingest_requests_total{code="201",route="/v1/alerts"} 1.0',
        'redispatch_ingest_requests_total{code="404",route="other"} 1.0',
        'redispatch_alerts_total{outcome="queued",source="native"} 1.0',
        'redispatch_alerts_total{outcome="duplicate",source="native"} 1.0',
        'redispatch_alerts_total{outcome="invalid",source="native"} 1.0',
        'redispatch_alerts_total{outcome="conflict",source="reading"} 0.0',
        'redispatch_redis_errors_total{kind="oom"} 0.0',
    ):
        assert line in text
    assert "unheard" not in text
    assert "_created" not in text


def test_every_label_value_exists_from_the_start() -> None:
    text = generate_latest(Metrics(["/v1/alerts"]).registry).decode()
    assert 'redispatch_ingest_requests_total{code="503",route="/v1/alerts"} 0.0' in text
    assert 'redispatch_redis_unsafe{kind="no_aof"} 0.0' in text


@pytest.fixture
async def wire(site: Served) -> AsyncIterator[Wire]:
    async with Wire(site.address) as made:
        yield made


def head(path: str = "/v1/readings", length: int | None = len(READING), *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", *more]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode()


async def test_a_refusal_leaves_the_connection_usable(wire: Wire) -> None:
    for body in (b"x" * 1000, b"x" * 60_000):
        wire.send(head("/nothing", len(body)), body, head(), READING)
        assert (await wire.reply()).status == 404
        assert (await wire.reply()).status == 201


async def test_a_large_refused_body_closes_the_connection_and_says_so(wire: Wire) -> None:
    wire.send(head(length=50_000_000), b"x" * 100_000)
    reply = await wire.reply()
    assert (reply.status, reply.headers["Connection"]) == (413, "close")
    assert await wire.closed()


async def test_a_slow_body_is_408_and_the_end_of_the_connection(site: Served, wire: Wire) -> None:
    wire.send(head(), READING[:10])
    reply = await wire.reply()
    assert is_problem(reply, 408)
    assert reply.headers["Connection"] == "close"
    assert await wire.closed()
    assert site.memory.readings == []


async def test_a_body_in_pieces_is_fine(wire: Wire) -> None:
    wire.send(head(), READING[:10])
    await wire.writer.drain()
    wire.send(READING[10:])
    assert (await wire.reply()).status == 201


async def test_a_chunked_body_is_fine_and_bounded(wire: Wire) -> None:
    chunked = head("/v1/readings", None, "Transfer-Encoding: chunked")
    wire.send(chunked, b"%x\r\n%b\r\n0\r\n\r\n" % (len(READING), READING))
    assert (await wire.reply()).status == 201
    piece = b" " * 40_000
    wire.send(chunked, b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for _ in range(3)))
    assert (await wire.reply()).status == 413


async def test_a_chunk_that_is_none_is_400(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    wire.send(head("/v1/readings", None, "Transfer-Encoding: chunked"), b"zz\r\n")
    assert (await wire.reply()).status == 400
    assert not any(record.exc_info for record in caplog.records)


async def test_a_sender_that_goes_away_in_mid_body_is_no_error_of_ours(
    site: Served, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    wire.send(head("/v1/readings", len(READING), "Expect: 100-continue"))
    assert (await wire.reply()).status == 100
    wire.writer.transport.abort()
    async with asyncio.timeout(30):
        assert await site.answers.get() == ("/v1/readings", 400)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_what_is_no_http_is_400_without_a_traceback(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wire.send(b"POST /v1/alerts\r\nnonsense\r\n\r\n")
    assert (await wire.reply()).status == 400
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    "header", [b"Content-Type: \xff", b"Content-Type: text/json; charset=\xff", b"Content-Encoding: \xff"]
)
async def test_a_header_that_is_no_text_is_refused_like_another(wire: Wire, header: bytes) -> None:
    wire.send(b"POST /v1/readings HTTP/1.1\r\nHost: x\r\n%b\r\nContent-Length: 2\r\n\r\n{}" % header)
    reply = await wire.reply()
    assert is_problem(reply, 415)
    assert "\\udcff" in reply.json["detail"]


@pytest.mark.parametrize("version", [b"abc", b"=", b"2.0.0-\xff", b"1.0.0; escaping=\xff", b"1.0.0"])
async def test_metrics_are_told_whatever_is_accepted(wire: Wire, version: bytes) -> None:
    accept = b"application/openmetrics-text; version=" + version
    wire.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: %b\r\n\r\n" % accept)
    assert (await wire.reply()).status == 200


async def test_a_sender_that_asks_first_is_told_to_go_on(wire: Wire) -> None:
    wire.send(head("/v1/readings", len(READING), "Expect: 100-continue"))
    assert (await wire.reply()).status == 100
    wire.send(READING)
    assert (await wire.reply()).status == 201


@pytest.mark.parametrize("header", ["Content-Encoding: br", "Content-Type: text/html", "Expect: miracles"])
async def test_a_sender_that_asks_is_told_what_will_not_do_before_it_sends(wire: Wire, header: str) -> None:
    asked = head("/v1/readings", len(READING), "Expect: 100-continue", header)
    if "Type" in header:
        asked = asked.replace(b"Content-Type: application/json\r\n", b"")
    wire.send(asked)
    reply = await wire.reply()
    assert is_problem(reply, 417 if "Expect" in header else 415)
    if "Encoding" in header:
        assert reply.headers["Accept-Encoding"] == "gzip, deflate, zstd, identity"


async def test_a_sender_that_asks_for_too_much_is_refused_at_once(wire: Wire) -> None:
    wire.send(head("/v1/readings", 10**9, "Expect: 100-continue"))
    assert (await wire.reply()).status == 413


async def test_old_and_closing_clients_are_answered(site: Served, wire: Wire) -> None:
    wire.send(head("/v1/readings", len(READING), "Connection: close"), READING)
    reply = await wire.reply()
    assert (reply.status, reply.headers["Connection"]) == (201, "close")
    assert await wire.closed()
    async with Wire(site.address) as old:
        old.send(head().replace(b"HTTP/1.1", b"HTTP/1.0"), READING)
        assert (await old.reply()).status == 201
        assert await old.closed()


async def test_pipelined_requests_are_answered_in_order(wire: Wire) -> None:
    wire.send(head(), READING, head("/nothing", 0), head(), READING)
    assert [(await wire.reply()).status for _ in range(3)] == [201, 404, 201]


async def test_a_client_that_goes_away_takes_nothing_back(site: Served, wire: Wire) -> None:
    site.memory.hold = asyncio.Event()
    body = json.dumps(ALERT).encode()
    wire.send(head("/v1/alerts", len(body)), body)
    await site.memory.begun.wait()
    wire.writer.transport.abort()
    site.memory.hold.set()
    async with asyncio.timeout(30):
        await site.memory.stored.wait()
    assert site.memory.events[0].alert.host == "web-1"


async def test_a_taken_port_is_a_clear_error(site: Served) -> None:
    nothing = Site({}, ready=lambda: None, registry=site.metrics.registry)
    with pytest.raises(CannotListen, match=r"127\.0\.0\.1:\d+ .*in use.*ingest\.listen"):
        await serve(nothing, site.address, setting="ingest.listen")
    with pytest.raises(CannotListen, match=r"expected address:port"):
        await serve(nothing, "nonsense", setting="ingest.listen")

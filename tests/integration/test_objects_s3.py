"""Objects in a bucket of S3, as moto's server has it on loopback."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from redis.asyncio import Redis

from common.alert import encode
from common.append import DUPLICATE, QUEUED, Store
from common.keys import Destination
from common.objects import Objects, place
from common.reference import refer
from common.settings import Objects as Section
from common.stored import Away, Broken, Missing
from common.wire import Wire
from dispatcher.sweep import OLD, Swept, sweep
from tests.support.deliveries import alert
from tests.support.s3 import S3, running
from tests.support.servers import Server
from tests.support.settings import build

LARGE = alert(key="k", summary="x" * 100_000)
STORED = encode(LARGE)


@pytest.fixture(scope="module")
def store() -> Iterator[S3]:
    with running() as made:
        made.bucket()  # with its first request it imports so much that it may take longer than our patience
        yield made


@pytest.fixture
def s3(store: S3, monkeypatch: pytest.MonkeyPatch) -> S3:
    """With the environment that leads to it."""
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    return store


@pytest.fixture
def bucket(s3: S3) -> str:
    return s3.bucket()


async def test_there_and_back(bucket: str) -> None:
    bucket += "/below/this"
    objects = Objects(bucket, "redispatch")
    reference = await objects.put("pager", LARGE, STORED)
    assert await objects.get("pager", reference) == STORED
    assert [[(each[0], each[1]) for each in page] async for page in objects.pages()] == [
        [("pager", reference.object)]
    ]
    path = f"redispatch/pager/{reference.object}"
    for other in (STORED.replace(b"x", b"y", 1), STORED + b"y", STORED * 2, b""):
        await place(bucket).put(path, other)
        with pytest.raises(Broken, match=r"checksum|bytes"):
            await objects.get("pager", reference)
    await objects.delete("pager", [reference.object, "0" * 32])
    with pytest.raises(Missing):
        await objects.get("pager", reference)
    assert [page async for page in objects.pages()] == []


async def test_without_its_bucket_nothing_is_known(s3: S3) -> None:
    objects = Objects(f"s3://nobody-made-{secrets.token_hex(8)}", "redispatch")
    works: list[Callable[[], Awaitable[Any]]] = [
        lambda: objects.put("pager", LARGE, STORED),
        lambda: objects.get("pager", refer(LARGE, STORED)),
        lambda: objects.delete("pager", ["0" * 32, "1" * 32]),
    ]
    for work in works:
        with pytest.raises(Away, match="NoSuchBucket") as told:
            await work()
        assert "hunter2" not in str(told.value)
        assert "\n" not in str(told.value)
    with pytest.raises(Away):
        assert [page async for page in objects.pages()]


async def test_nobody_answers(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:1")
    objects = Objects(f"{bucket}/unreachable", "redispatch")
    async with asyncio.timeout(30):
        with pytest.raises(Away):
            await objects.put("pager", LARGE, STORED)


async def test_append_and_sweep(bucket: str, valkey: Server, connected: Callable[[Server], Redis]) -> None:
    redis = connected(valkey)
    settings = build(destinations=["one", "two"], objects=Section(url=bucket))
    append = Store(Wire(redis), settings, cluster=True)
    places = {"one": [0], "two": [0]}
    assert await append.append([LARGE], places) == [dict.fromkeys(places, QUEUED)]
    assert await append.append([LARGE], places) == [dict.fromkeys(places, DUPLICATE)]
    objects = Objects(bucket, "redispatch")
    orphan = await objects.put("one", LARGE, STORED)
    seconds, _ = await redis.time()
    assert await sweep(redis, objects, "redispatch", seconds * 1000) == Swept(seen=3, young=3)
    later = seconds * 1000 + OLD + 60_000
    assert await sweep(redis, objects, "redispatch", later) == Swept(seen=3, removed=1)
    for name in places:
        stream: Any = await redis.xrange(Destination("redispatch", name).stream)
        [(_, fields)] = stream
        assert fields[b"object"] != orphan.object.encode()
        assert [each async for page in objects.pages() for at, each, _ in page if at == name] == [
            fields[b"object"].decode()
        ]

"""What waits in `retry` and did not come from settle harms nobody: it goes on, to die as malformed."""

from __future__ import annotations

import msgspec
import pytest
from redis.asyncio import Redis

from common.alert import Malformed
from common.keys import Destination
from common.wire import Wire
from dispatcher.entry import read
from dispatcher.take import make_group, take

AT = Destination("redispatch", "hook")
SOUND = b"1-0 " + msgspec.msgpack.encode(["key", "k", "alert", "{}", "first_at", "1"])


@pytest.mark.parametrize(
    "member",
    [
        b"garbage",
        b"",
        b"1-0 ",
        b"1-0 \xc1",
        b"1-0 " + msgspec.msgpack.encode(7),
        b"1-0 " + msgspec.msgpack.encode([]),
        b"1-0 " + msgspec.msgpack.encode(["key"]),
        b"1-0 " + msgspec.msgpack.encode(["key", ["k"]]),
        b"1-0 " + msgspec.msgpack.encode(["key", None, "alert", "{}"]),
        b"1-0 " + msgspec.msgpack.encode({"key": "k"}),
        b"1-0 " + msgspec.msgpack.encode(["x"] * 20_000),
    ],
)
async def test_a_foreign_member_is_taken_along(redis: Redis, member: bytes) -> None:
    await make_group(redis, AT)
    wire = Wire(redis)
    await take(wire, AT, "a", 1)  # which makes the server know the script
    await redis.zadd(AT.retry, {member: 1, SOUND: 2})
    first, second = (await take(wire, AT, "a", 10)).entries
    await wire.close()
    assert first.fields == {b"alert": member}
    with pytest.raises(Malformed):
        read(first)
    assert second.fields[b"key"] == b"k"
    assert await redis.zcard(AT.retry) == 0

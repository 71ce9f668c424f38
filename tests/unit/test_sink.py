"""The receiver of `make bench` counts requests however they are cut."""

from __future__ import annotations

import asyncio
import json
from typing import cast

import pytest

from benchmarks.sink import Sink

REQUEST = b"POST /hook HTTP/1.1\r\nHost: h\r\nContent-LENGTH: 5\r\n\r\nhello"
EMPTY = b"POST /hook HTTP/1.1\r\nHost: h\r\n\r\n"


class Written:
    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


@pytest.mark.parametrize("size", [1, 7, len(REQUEST), len(REQUEST) + 1, 1000])
def test_requests_in_pieces_of_any_size(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(Sink, "taken", 0)
    sent, written = REQUEST * 3 + EMPTY + REQUEST + b"GET / HTTP/1.1\r\n\r\n", Written()
    sink = Sink()
    sink.connection_made(cast(asyncio.BaseTransport, written))
    for start in range(0, len(sent), size):
        sink.data_received(sent[start : start + size])
    *taken, told = written.data.split(b"HTTP/1.1 ")[1:]
    assert taken == [b"204 No Content\r\n\r\n"] * 5
    count, cpu = json.loads(told.partition(b"\r\n\r\n")[2])
    assert count == 5
    assert cpu > 0

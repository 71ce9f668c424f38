"""Compressed bodies: every flavour that senders use, and none that lies."""

from __future__ import annotations

import gzip
import zlib

import pytest

from ingest.formats.bodies import BadBody
from ingest.inflate import MOST_MEMBERS, inflate

PLAIN = b'{"host":"node-01","metric":"cpu","value":1.5}' * 50
LIMIT = len(PLAIN)


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(PLAIN)),
        ("GZIP", gzip.compress(PLAIN)),
        ("x-gzip", gzip.compress(PLAIN)),
        ("gzip", gzip.compress(PLAIN[:100]) + gzip.compress(PLAIN[100:])),
        ("deflate", zlib.compress(PLAIN)),
        ("Deflate", raw_deflate(PLAIN)),
    ],
)
def test_what_is_inflated(encoding: str, body: bytes) -> None:
    assert inflate(body, encoding, LIMIT) == PLAIN


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(PLAIN)[:-1]),
        ("gzip", gzip.compress(PLAIN)[:40]),
        ("gzip", gzip.compress(PLAIN[:100]) + gzip.compress(PLAIN[100:])[:-9]),
        ("gzip", gzip.compress(PLAIN) + b"tail"),
        ("gzip", PLAIN),
        ("gzip", b""),
        ("gzip", zlib.compress(PLAIN)),
        ("deflate", gzip.compress(PLAIN)),
        ("deflate", zlib.compress(PLAIN)[:-5]),
        ("deflate", zlib.compress(PLAIN) + b"tail"),
        ("deflate", b""),
        ("gzip", gzip.compress(b"") * (MOST_MEMBERS + 1)),
    ],
)
def test_what_is_damaged_is_400(encoding: str, body: bytes) -> None:
    with pytest.raises(BadBody) as refused:
        inflate(body, encoding, LIMIT)
    assert refused.value.status == 400


@pytest.mark.parametrize("encoding", ["zstd", "br", "snappy", "gzip, gzip", "x" * 500])
def test_other_encodings_are_415_and_say_what_is_supported(encoding: str) -> None:
    with pytest.raises(BadBody, match="gzip, deflate") as refused:
        inflate(b"", encoding, LIMIT)
    assert refused.value.status == 415


def test_the_limit_holds_for_what_comes_out() -> None:
    bomb = gzip.compress(bytes(20_000_000))
    for body, encoding in ((bomb, "gzip"), (zlib.compress(bytes(LIMIT + 1)), "deflate")):
        with pytest.raises(BadBody) as refused:
            inflate(body, encoding, LIMIT)
        assert refused.value.status == 413


@pytest.mark.parametrize("encoding", [None, "", "identity", " Identity "])
def test_identity_is_the_body_itself(encoding: str | None) -> None:
    assert inflate(PLAIN, encoding, LIMIT) is PLAIN

"""A compressed body's bytes to its plain ones: gzip, deflate (zlib and raw), zstd; one member or several.

`encoding` looks at the headers before the body is there and returns what inflates it. The limit holds while
inflating, piece by piece, so that a small body can't become a large one in memory. Raises BadBody: 413 beyond
the limit, 400 for what is damaged or cut short, 415 for another encoding.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from aiohttp import hdrs
from multidict import MultiMapping

from ingest.formats.bodies import BadBody

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SUPPORTED = "gzip, deflate, zstd, identity"
MOST_MEMBERS = 1000
WINDOW_LOG = 23  # 8 MiB, which RFC 9659 lets a sender expect, and no more
PIECE = 65_536  # bytes; between two pieces other threads get their turn
BREATH = 8  # pieces, a millisecond of work, then a pause, so that a busy machine lets others go first
PAUSE = 0.001  # seconds

Inflate: TypeAlias = Callable[[bytes, int], bytes]  # the body, the most bytes that may come out


class _Stream(Protocol):
    """One member, as the standard library's decompressors are."""

    @property
    def eof(self) -> bool:
        """Whether the member is complete."""

    @property
    def unused_data(self) -> bytes:
        """What was given and lies behind the member's end."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """The next piece; shorter than that: it wants more data. What it did not get to it keeps."""


class _Zlib:
    def __init__(self, wbits: int) -> None:
        self._stream = zlib.decompressobj(wbits)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


def _zstandard() -> _Stream:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: WINDOW_LOG})


def encoding(headers: MultiMapping[str]) -> Inflate | None:
    """What inflates a body with these headers; None: it is plain. Raises BadBody (415)."""
    told = headers.getall(hdrs.CONTENT_ENCODING, None)
    if told is None:
        return None
    names = [name.strip().lower() for name in ",".join(told).split(",")]
    applied = [name for name in names if name not in {"", "identity"}]
    if not applied:
        return None
    inflate = _KNOWN.get(applied[0]) if len(applied) == 1 else None
    if inflate is None:
        name = ", ".join(applied)[:64]
        raise BadBody(415, f"Content-Encoding {name} is not supported; send one of {SUPPORTED}")
    return inflate


def _gzip(data: bytes, limit: int) -> bytes:
    return _whole(data, lambda: _Zlib(31), limit, MOST_MEMBERS, "gzip")


def _deflate(data: bytes, limit: int) -> bytes:
    """Half of all senders leave zlib's head out, and no raw body begins like one: that block would be padded
    with ones."""
    wrapped = len(data) > 1 and data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0
    return _whole(data, lambda: _Zlib(15 if wrapped else -15), limit, 1, "deflate")


def _zstd(data: bytes, limit: int) -> bytes:
    try:
        told = zstd.get_frame_info(data).decompressed_size
    except zstd.ZstdError:
        told = None  # reading it tells what is wrong
    if (told or 0) > limit:
        raise _too_large(limit)
    return _whole(data, _zstandard, limit, MOST_MEMBERS, "zstd")


_KNOWN: dict[str, Inflate] = {"gzip": _gzip, "x-gzip": _gzip, "deflate": _deflate, "zstd": _zstd}


def _whole(data: bytes, make: Callable[[], _Stream], limit: int, members: int, name: str) -> bytes:
    plain: list[bytes] = []
    size = 0
    try:
        for piece in _pieces(data, make, members):
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            plain.append(piece)
            if len(plain) % BREATH == 0:
                time.sleep(PAUSE)
    except (zlib.error, zstd.ZstdError):
        raise BadBody(400, f"the body is not {name}, though Content-Encoding says so") from None
    return b"".join(plain)


def _pieces(data: bytes, make: Callable[[], _Stream], members: int) -> Iterator[bytes]:
    at = 0
    for _ in range(members):
        stream = make()
        piece = b""
        while not stream.eof:
            given = b"" if len(piece) == PIECE else data[at : at + PIECE]
            if not given and len(piece) < PIECE:
                raise BadBody(400, "the compressed body ends early")
            at += len(given)
            piece = stream.decompress(given, PIECE)
            yield piece
        at -= len(stream.unused_data)
        if at == len(data):
            return
    raise BadBody(400, "something follows the compressed body")


def _too_large(limit: int) -> BadBody:
    return BadBody(413, f"the body is larger than {limit} bytes when decompressed")

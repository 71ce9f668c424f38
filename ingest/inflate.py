"""A compressed body's bytes to its plain ones: gzip (one member or several), deflate (zlib and raw).

The limit holds while inflating, so that a small body can't become a large one in memory. Raises BadBody:
413 beyond the limit, 400 for what is damaged or cut short, 415 for another encoding.
"""

from __future__ import annotations

import zlib

from ingest.formats.bodies import BadBody

SUPPORTED = "gzip, deflate, identity"
MOST_MEMBERS = 1000
_CHUNK = 65_536
_GZIP, _ZLIB, _RAW = 31, 15, -15  # zlib's wbits


def inflate(data: bytes, encoding: str | None, limit: int) -> bytes:
    """At most `limit` bytes; without an encoding the body itself. Raises BadBody."""
    name = (encoding or "").strip().lower()
    try:
        if name in {"", "identity"}:
            return data
        if name in {"gzip", "x-gzip"}:
            return _inflate(data, _GZIP, limit, MOST_MEMBERS)
        if name == "deflate":
            return _deflate(data, limit)
    except zlib.error:
        raise BadBody(400, f"the body is not {name}, though Content-Encoding says so") from None
    raise BadBody(415, f"Content-Encoding {name[:64]} is not supported; send one of {SUPPORTED}")


def _deflate(data: bytes, limit: int) -> bytes:
    try:
        return _inflate(data, _ZLIB, limit, 1)
    except zlib.error:  # half of all senders leave zlib's two bytes out
        return _inflate(data, _RAW, limit, 1)


def _inflate(data: bytes, wbits: int, limit: int, members: int) -> bytes:
    plain = bytearray()
    at = 0
    for _ in range(members):
        stream = zlib.decompressobj(wbits)
        while not stream.eof:
            if at >= len(data):
                raise BadBody(400, "the compressed body ends early")
            plain += stream.decompress(data[at : at + _CHUNK], limit - len(plain) + 1)
            at += _CHUNK
            if len(plain) > limit:
                raise BadBody(413, f"the body is larger than {limit} bytes when decompressed")
        at = min(at, len(data)) - len(stream.unused_data)
        if at == len(data):
            return bytes(plain)
    raise BadBody(400, "something follows the compressed body")

"""What senders post, as files: `tests/samples/payloads` (made up), `captures` (real ones), `malformed`."""

from __future__ import annotations

from pathlib import Path

from multidict import CIMultiDict

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
JSON = {"Content-Type": "application/json"}


def payload(name: str) -> bytes:
    """A sample body."""
    return (SAMPLES / "payloads" / name).read_bytes()


def malformed(name: str) -> bytes:
    """A body that is wrong, or looks so."""
    return (SAMPLES / "malformed" / name).read_bytes()


def request(name: str) -> tuple[bytes, CIMultiDict[str]]:
    """Body and headers of a real request, byte for byte."""
    return split((SAMPLES / "captures" / f"{name}.http").read_bytes())


def split(raw: bytes) -> tuple[bytes, CIMultiDict[str]]:
    """The same of any request; its lines may end with LF alone."""
    end = b"\r\n\r\n" if b"\r\n\r\n" in raw else b"\n\n"
    head, _, body = raw.partition(end)
    lines = [line.split(":", 1) for line in head.decode().splitlines()[1:]]
    return body, CIMultiDict((name, value.strip()) for name, value in lines)

"""Lookups that hang hold up no other, and not the end of the process."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from dispatcher import guard

HANGS = """
import asyncio, socket, threading
from dispatcher import guard
import uvloop

asked = threading.Event()

def never(*where, **options):
    asked.set()
    threading.Event().wait()

async def main():
    socket.getaddrinfo = never
    lookup = asyncio.create_task(guard.Resolver(guarded=True).resolve("slow.example", 80))
    await asyncio.to_thread(asked.wait)
    lookup.cancel()

uvloop.run(main())
"""


async def test_names_that_hang_leave_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    over, real = threading.Event(), socket.getaddrinfo

    def lookup(host: str, *where: Any, **options: Any) -> Any:
        if host != "127.0.0.1":
            over.wait(60)
        return real("127.0.0.1", *where, **options)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    resolver = guard.Resolver(guarded=False)
    hanging = [asyncio.create_task(resolver.resolve(f"slow{n}.example", 80)) for n in range(40)]
    try:
        await asyncio.sleep(0)  # all of them ask first
        async with asyncio.timeout(20):
            found = await resolver.resolve("127.0.0.1", 80)
        assert [each["host"] for each in found] == ["127.0.0.1"]
        assert not any(task.done() for task in hanging)
    finally:
        over.set()
        await asyncio.gather(*hanging)


async def test_what_the_system_raises_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*where: Any, **options: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(socket.gaierror):
        await guard.Resolver(guarded=False).resolve("none.example", 80)


def test_a_process_ends_while_a_lookup_hangs() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGS], timeout=30, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")

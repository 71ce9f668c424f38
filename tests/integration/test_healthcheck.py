"""The image's health check, of what really listens: plain, with TLS, and where TLS wants a certificate."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from common.http import Site
from common.listen import serve
from common.units import Address
from ops import healthcheck
from tests.support.certificates import Authority
from tests.support.listener import Listener
from tests.support.servers import free_port

ENVIRON = {
    "REDISPATCH_INGEST_LISTEN": "0.0.0.0:8080",
    "REDISPATCH_DISPATCHER_LISTEN": "[::]:8081",
    "REDISPATCH_CONSOLE_LISTEN": ":8090",
}


@pytest.mark.parametrize(
    ("command", "there"),
    [
        ("python -m ingest", Address("0.0.0.0", 8080)),
        ("python -m dispatcher --config x", Address("::", 8081)),
        ("/opt/redispatch/bin/python /opt/redispatch/bin/redispatch console", Address("", 8090)),
        ("/sbin/docker-init -- redispatch ingest", Address("0.0.0.0", 8080)),
        ("redispatch agent", None),
    ],
)
def test_process_1_tells_what_listens(command: str, there: Address | None) -> None:
    assert healthcheck.place(command.split(), ENVIRON) == there


def test_a_service_whose_place_is_not_told_is_not_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tmp_path / "cmdline"
    words.write_bytes(b"python\0-m\0ingest\0")
    monkeypatch.setattr(healthcheck, "WORDS", words)
    monkeypatch.delenv("REDISPATCH_INGEST_LISTEN", raising=False)
    assert healthcheck.main([]) == 1
    assert "where the service listens is unknown" in capsys.readouterr().out


@pytest.mark.parametrize("how", ["plain", "tls", "client certificates"])
async def test_a_service_that_is_well(how: str, tmp_path: Path) -> None:
    site = Site({}, ready=lambda: None, registry=CollectorRegistry())
    tls = None if how == "plain" else Authority(tmp_path).server(asks_for_client=how == "client certificates")
    server = await serve(site, "127.0.0.1:0", setting="listen", tls=tls)
    assert await asyncio.to_thread(healthcheck.main, [server.address]) == 0
    await server.close(0)


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert healthcheck.main([f"127.0.0.1:{free_port()}"]) == 1
    assert "refused" in capsys.readouterr().out


async def test_somebody_who_answers_something_else() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with Listener(answer) as listener:
        assert await asyncio.to_thread(healthcheck.fault, Address("", listener.port)) == "answers 503"

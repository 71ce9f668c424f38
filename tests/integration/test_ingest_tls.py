"""Ingest over TLS: its certificate, those of clients, files that are replaced, and what is said of others."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.settings import Ingest, ServerTls
from ingest.tls import TlsFault, context
from tests.support.certificates import Authority
from tests.support.ingest import Served, served
from tests.support.raw import Wire

BODY = b'{"host":"web-1","name":"disk-full","timestamp":1772439277}'
REQUEST = (
    b"POST /v1/alerts HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    % (len(BODY), BODY)
)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def tls(authority: Authority, tmp_path: Path) -> ServerTls:
    authority.issue("server")
    return ServerTls(cert=str(tmp_path / "server.crt"), key=str(tmp_path / "server.key"))


def trusting(authority: Authority, client: tuple[str, str] | None = None) -> ssl.SSLContext:
    """What a sender has: who vouches for us, and perhaps files with a certificate and a key of its own."""
    made = ssl.create_default_context(cadata=authority.certificate)
    if client is not None:
        made.load_cert_chain(*client)
    return made


def name_of(wire: Wire) -> str:
    """Whom the server's certificate names."""
    told = wire.writer.get_extra_info("peercert")
    return str(dict(part[0] for part in told["subject"])["commonName"])


async def test_it_speaks_tls_and_keeps_connections(authority: Authority, tls: ServerTls) -> None:
    async with served(Ingest(tls=tls)) as site, Wire(site.address, trusting(authority)) as wire:
        for status in (201, 200, 200):
            wire.send(REQUEST)
            assert (await wire.reply()).status == status
        assert wire.writer.get_extra_info("ssl_object").version() in ("TLSv1.2", "TLSv1.3")


def test_nothing_older_than_tls_1_2(tls: ServerTls) -> None:
    made = context(tls)
    assert made is not None
    assert made.minimum_version is ssl.TLSVersion.TLSv1_2
    assert made.verify_mode is ssl.CERT_NONE
    assert context(ServerTls()) is None


async def test_plain_http_and_rubbish_are_no_trouble(
    authority: Authority, tls: ServerTls, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(Ingest(tls=tls)) as site:
        for rubbish in (REQUEST, b"\x16\x03\x01\x00\x05hello", b"\x00" * 1000):
            async with Wire(site.address) as wire:
                wire.send(rubbish)
                assert b"HTTP" not in await wire.rest()
        async with Wire(site.address, trusting(authority)) as wire:
            wire.send(REQUEST)
            assert (await wire.reply()).status == 201
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_clients_need_a_certificate_where_there_is_an_authority_for_them(
    authority: Authority, tls: ServerTls, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "others").mkdir()
    others = Authority(tmp_path / "others", "others")
    for known in (authority, others):
        known.issue("client")
    mine = str(tmp_path / "client.crt"), str(tmp_path / "client.key")
    theirs = str(tmp_path / "others/client.crt"), str(tmp_path / "others/client.key")
    asking = Ingest(tls=ServerTls(cert=tls.cert, key=tls.key, client_ca=str(tmp_path / "authority.crt")))
    async with served(asking) as site:
        for client in (None, theirs):
            assert not await speaks(site, trusting(authority, client))
        assert not site.memory.begun.is_set()
        assert await speaks(site, trusting(authority, mine))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_replaced_files_are_taken_and_connections_stay(
    authority: Authority, tls: ServerTls, tmp_path: Path
) -> None:
    async with served(Ingest(tls=tls)) as site, Wire(site.address, trusting(authority)) as old:
        await site.certificates.look()  # nothing has changed
        assert name_of(old) == "server"
        authority.issue("renewed")
        for kind in ("crt", "key"):
            shutil.copy(tmp_path / f"renewed.{kind}", tmp_path / f"server.{kind}")
        await site.certificates.look()
        async with Wire(site.address, trusting(authority)) as fresh:
            assert name_of(fresh) == "renewed"
            for wire in (old, fresh):
                wire.send(REQUEST)
                assert (await wire.reply()).status in (200, 201)


async def test_what_cannot_be_used_is_told_once_and_the_old_one_stays(
    authority: Authority, tls: ServerTls, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(Ingest(tls=tls)) as site:
        authority.issue("renewed")
        shutil.copy(tmp_path / "renewed.crt", tmp_path / "server.crt")  # and its key is still to come
        for _ in range(3):
            await site.certificates.look()
        assert caplog.messages.count("certificates_refused") == 1
        async with Wire(site.address, trusting(authority)) as wire:
            assert name_of(wire) == "server"
        shutil.copy(tmp_path / "renewed.key", tmp_path / "server.key")
        await site.certificates.look()
        async with Wire(site.address, trusting(authority)) as wire:
            assert name_of(wire) == "renewed"


async def test_who_vouches_for_clients_is_replaced_too(
    authority: Authority, tls: ServerTls, tmp_path: Path
) -> None:
    (tmp_path / "others").mkdir()
    others = Authority(tmp_path / "others", "others")
    clients = {}
    for known, at in ((authority, tmp_path), (others, tmp_path / "others")):
        known.issue("client")
        clients[known] = trusting(authority, (str(at / "client.crt"), str(at / "client.key")))
    trusted = tmp_path / "trusted.crt"
    shutil.copy(tmp_path / "authority.crt", trusted)
    async with served(Ingest(tls=ServerTls(cert=tls.cert, key=tls.key, client_ca=str(trusted)))) as site:
        assert [await speaks(site, clients[one]) for one in (authority, others)] == [True, False]
        shutil.copy(tmp_path / "others/others.crt", trusted)
        await site.certificates.look()
        assert [await speaks(site, clients[one]) for one in (authority, others)] == [False, True]


async def speaks(site: Served, tls: ssl.SSLContext) -> bool:
    try:
        async with Wire(site.address, tls) as wire:
            wire.send(REQUEST)
            return (await wire.reply()).status in (200, 201)
    except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
        return False


@contextmanager
def refused(setting: str, text: str) -> Iterator[None]:
    with pytest.raises(TlsFault) as caught:
        yield
    assert caught.value.setting == setting
    assert text in caught.value.why
    assert str(caught.value) == f"ingest.tls.{setting}: {caught.value.why}"
    assert "PRIVATE" not in str(caught.value)


Change = Callable[[ServerTls, Path], ServerTls]


def with_password(tls: ServerTls, directory: Path) -> ServerTls:
    locked = directory / "locked.key"
    words = ["openssl", "ec", "-aes128", "-passout", "pass:x", "-in", str(tls.key), "-out", str(locked)]
    subprocess.run(words, check=True, capture_output=True)
    return ServerTls(cert=tls.cert, key=str(locked))


@pytest.mark.parametrize(
    ("change", "setting", "text"),
    [
        (lambda tls, at: ServerTls(cert=tls.cert), "key", "is missing"),
        (lambda tls, at: ServerTls(key=tls.key), "cert", "is missing"),
        (lambda tls, at: ServerTls(client_ca=tls.cert), "cert", "is missing"),
        (lambda tls, at: ServerTls(cert=str(at / "no"), key=tls.key), "cert", "no such file"),
        (lambda tls, at: ServerTls(cert=tls.cert, key=str(at)), "key", "is a directory"),
        (lambda tls, at: ServerTls(cert=tls.cert, key="a\0b"), "key", "is no path"),
        (lambda tls, at: ServerTls(cert=tls.key, key=tls.cert), "cert", "no certificate and key in PEM"),
        (
            lambda tls, at: ServerTls(cert=tls.cert, key=str(at / "authority.key")),
            "key",
            "another certificate",
        ),
        (with_password, "cert", "without a password"),
        (
            lambda tls, at: ServerTls(cert=tls.cert, key=tls.key, client_ca=tls.key),
            "client_ca",
            "no certificate in PEM",
        ),
    ],
)
def test_wrong_files_are_told_by_name(
    tls: ServerTls, tmp_path: Path, change: Change, setting: str, text: str
) -> None:
    with refused(setting, text):
        context(change(tls, tmp_path))


def test_an_empty_file_holds_nothing(tls: ServerTls, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    with refused("cert", "no certificate"):
        context(ServerTls(cert=str(empty), key=tls.key))
    with refused("client_ca", "no certificate"):
        context(ServerTls(cert=tls.cert, key=tls.key, client_ca=str(empty)))

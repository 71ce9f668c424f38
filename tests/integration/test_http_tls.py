"""Authorities and client certificates of a destination, and proxies of the environment."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from ssl import SSLContext

import pytest
from yarl import URL

from common.config import ConfigError, load
from common.outcomes import Outcome, OutcomeKind
from common.units import Secret
from dispatcher.destinations import kinds
from dispatcher.destinations.base import Unusable
from dispatcher.destinations.environment import proxy
from dispatcher.destinations.post import Poster
from dispatcher.destinations.tls import Tls, TlsFault, context
from tests.support.certificates import Authority
from tests.support.deliveries import webhook
from tests.support.listener import Listener
from tests.support.raw import OK, RawServer, answering

DEADLINE = 30.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def https(context: SSLContext) -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK)
            await writer.drain()
            writer.close()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client did not like what it saw

    async with Listener(answer, context) as listener:
        yield f"https://127.0.0.1:{listener.port}/hook"


async def posted(url: str, tls: Tls) -> Outcome:
    poster = Poster(webhook(url, tls=tls))
    async with asyncio.timeout(DEADLINE):
        outcome = await poster.post(b"{}", {})
        await poster.close()
    return outcome


async def test_an_authority_of_ones_own(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "other")
    async with https(authority.server()) as url:
        known = await posted(url, Tls(ca=Secret(authority.certificate)))
        assert known == Outcome(OutcomeKind.DELIVERED, 200)
        for tls in (Tls(), Tls(ca=Secret(other.certificate))):
            unknown = await posted(url, tls)
            assert unknown.kind is OutcomeKind.CONNECTION
            assert "certificate verify failed" in unknown.error


async def test_the_name_is_checked_with_ones_own_authority(authority: Authority) -> None:
    async with https(authority.server()) as url:
        wrong = await posted(url.replace("127.0.0.1", "localhost"), Tls(ca=Secret(authority.certificate)))
    assert wrong.kind is OutcomeKind.CONNECTION
    assert "localhost" in wrong.error


async def test_a_clients_certificate(authority: Authority) -> None:
    ca = Secret(authority.certificate)
    cert, key = authority.issue("client")
    async with https(authority.server(asks_for_client=True)) as url:
        assert (
            await posted(url, Tls(ca=ca, cert=Secret(cert), key=Secret(key)))
        ).kind is OutcomeKind.DELIVERED
        assert (await posted(url, Tls(ca=ca))).kind is OutcomeKind.CONNECTION


def test_nothing_of_a_key_is_left_in_a_file(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    cert, key = authority.issue("client")
    made: list[str] = []
    real = SSLContext.load_cert_chain

    def load_chain(self: SSLContext, file: str, **rest: str) -> None:
        made.append(file)
        assert Path(file).stat().st_mode & 0o077 == 0
        real(self, file, **rest)

    monkeypatch.setattr(SSLContext, "load_cert_chain", load_chain)
    context(Tls(cert=Secret(cert), key=Secret(key)))
    assert [Path(file).exists() for file in made] == [False]


def test_certificates_that_cannot_be_used(authority: Authority) -> None:
    cert, key = map(Secret, authority.issue("client"))
    _, other = map(Secret, authority.issue("other"))
    junk = Secret("-----BEGIN CERTIFICATE-----\nhidden\n-----END CERTIFICATE-----\n")
    bad = [
        (Tls(ca=junk), "ca", "holds no certificate in PEM that can be read"),
        (Tls(ca=Secret("hidden")), "ca", "holds no certificate in PEM that can be read"),
        (Tls(ca=Secret("")), "ca", "holds no certificate in PEM that can be read"),
        (Tls(cert=cert), "key", "is missing; there is a certificate"),
        (Tls(key=key), "cert", "is missing; there is a key"),
        (Tls(cert=cert, key=other), "key", "belongs to another certificate"),
        (Tls(cert=junk, key=key), "cert", "can't be used with this key: "),
        (Tls(cert=cert, key=Secret("hidden")), "cert", "can't be used with this key: "),
    ]
    for tls, setting, why in bad:
        with pytest.raises(TlsFault) as raised:
            context(tls)
        assert raised.value.setting == setting
        assert str(raised.value).startswith(why)
        assert "hidden" not in str(raised.value)


def test_a_destination_names_the_setting(authority: Authority) -> None:
    with pytest.raises(Unusable, match=r"^destination pager: tls\.ca: holds no certificate"):
        kinds.make(webhook(tls=Tls(ca=Secret("none"))))


def test_faults_of_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "redispatch.yaml"
    file.write_text(
        "destinations: [{name: a, type: webhook, url: 'http://h/', connect_timeout: 0s, retry_on: [404, 600],"
        " tls: {ca: 'file:absent.pem', key: k}}]\nroutes: [{to: [a]}]\n"
    )
    with pytest.raises(ConfigError) as raised:
        load(str(file), {}, kinds)
    told = "\n".join(f"{fault.place} {fault.message}" for fault in raised.value.faults)
    assert f"destinations[0].tls.ca {tmp_path / 'absent.pem'} can't be read: No such file" in told
    assert "destinations[0].retry_on[1] " in told
    file.write_text(file.read_text().replace("404, 600", "404").replace("ca: 'file:absent.pem', ", ""))
    with pytest.raises(ConfigError) as raised:
        load(str(file), {}, kinds)
    told = "\n".join(f"{fault.place} {fault.message}" for fault in raised.value.faults)
    assert "destinations[0].connect_timeout must be more than 0" in told
    assert "destinations[0].tls.cert is missing; there is a key" in told
    assert "destinations[0].retry_on[0] 404 is in gate_on too; give that list without it" in told


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    return monkeypatch


async def test_a_proxy_is_used_when_asked(environment: pytest.MonkeyPatch) -> None:
    async with RawServer(answering(OK)) as through:
        environment.setenv("http_proxy", f"http://me:p%40ss@127.0.0.1:{through.port}")
        poster = Poster(webhook("http://nowhere.example/hook", proxy_from_env=True))
        assert await poster.post(b"{}", {}) == Outcome(OutcomeKind.DELIVERED, 200)
        await poster.close()
    [request] = through.requests
    assert request.head.startswith(b"POST http://nowhere.example/hook HTTP/1.1\r\n")
    credentials = b"Proxy-Authorization: Basic " + base64.b64encode(b"me:p@ss")
    assert credentials.lower() in request.head.lower()


async def test_https_goes_through_a_tunnel(environment: pytest.MonkeyPatch) -> None:
    async with RawServer(answering(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")) as through:
        environment.setenv("HTTPS_PROXY", f"http://me:p%40ss@127.0.0.1:{through.port}")
        poster = Poster(webhook("https://nowhere.example/hook", proxy_from_env=True))
        outcome = await poster.post(b"{}", {})
        await poster.close()
    assert outcome == Outcome(
        OutcomeKind.CONNECTION, error="the proxy for nowhere.example:443 refused with HTTP 403"
    )
    assert through.requests[0].head.startswith(b"CONNECT nowhere.example:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization" in through.requests[0].head


async def test_the_guard_looks_at_the_proxy(environment: pytest.MonkeyPatch) -> None:
    async with RawServer(answering(OK)) as through:
        environment.setenv("http_proxy", f"http://127.0.0.1:{through.port}")
        poster = Poster(webhook("http://nowhere.example/", proxy_from_env=True, allow_private=False))
        assert (await poster.post(b"{}", {})).kind is OutcomeKind.REFUSED
        await poster.close()
    assert through.connections == 0


def test_which_proxy(environment: pytest.MonkeyPatch) -> None:
    assert proxy(URL("http://h.example/")) is None
    environment.setenv("all_proxy", "http://all.example:1")
    environment.setenv("https_proxy", "http://tls.example:2")
    environment.setenv("no_proxy", "inside.example,10.0.0.7")
    assert proxy(URL("http://h.example/")) == URL("http://all.example:1")
    assert proxy(URL("https://h.example/")) == URL("http://tls.example:2")
    assert proxy(URL("https://a.inside.example/")) is None
    assert proxy(URL("http://10.0.0.7:8080/")) is None
    for bad in ("socks5://h:1", "h", "http://"):
        environment.setenv("https_proxy", bad)
        with pytest.raises(ValueError, match="form http://host:port"):
            proxy(URL("https://h.example/"))

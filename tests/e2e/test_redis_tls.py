"""Redis over TLS: an authority of one's own, a client's certificate, and what is said of those refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import exceptions as errors
from redis.asyncio import Redis

from common import connect
from common.settings import Redis as Section
from common.units import Duration
from tests.support.certificates import Authority
from tests.support.fleet import Fleets
from tests.support.receiver import Receiver
from tests.support.servers import Server, as_user, free_port


class Over:
    """A server that speaks TLS to those whom the authority vouches for, and plainly on another port."""

    def __init__(self, directory: Path, certificate: str) -> None:
        self.directory = directory
        self.port = free_port()
        files = ("cert", f"{certificate}.crt"), ("key", f"{certificate}.key"), ("ca-cert", "authority.crt")
        told = [word for name, file in files for word in (f"--tls-{name}-file", str(directory / file))]
        self.server = Server("redis", directory / f"data-{certificate}")
        self.server.start("--tls-port", str(self.port), *told)

    def url(self, **files: str) -> str:
        """With these files as options of the address."""
        options = "&".join(f"ssl_{name}={self.directory / file}" for name, file in files.items())
        return f"rediss://127.0.0.1:{self.port}/0?{options}"


GOOD = {"ca_certs": "authority.crt", "certfile": "client.crt", "keyfile": "client.key"}


@pytest.fixture(scope="module")
def over(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Over]:
    directory = tmp_path_factory.mktemp("tls")
    authority, other = Authority(directory), Authority(directory, "other")
    authority.issue("server")
    authority.issue("client")
    authority.issue("expired", days=0)
    other.issue("foreign")
    made = Over(directory, "server")
    yield made
    made.server.kill()


async def said_of(url: str, timeout: float = 20) -> str:
    """What a person is told of an address that can't be used."""
    section = Section(url=url, timeout=Duration(timeout))
    redis = connect.client(section)
    try:
        with pytest.raises(errors.RedisError) as raised:
            await connect.inspect(redis, section)
    finally:
        await redis.aclose()
    return connect.describe(raised.value, url).removeprefix(f"Redis at {url} ").partition(" The address")[0]


NOT_TRUSTED = "hung up: does it trust the certificate in ssl_certfile, and is that still valid?"
NOT_ACCEPTED = "does not accept the certificate in ssl_certfile: "


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"ca_certs": "other.crt"}, ["shows a certificate that is refused: "]),
        (
            {"certfile": "", "keyfile": ""},
            [
                "wants a client's certificate: ssl_certfile and ssl_keyfile.",
                "hung up: does it want a client's certificate (ssl_certfile, ssl_keyfile)?",
            ],
        ),
        ({"certfile": "foreign.crt", "keyfile": "foreign.key"}, [NOT_TRUSTED, NOT_ACCEPTED + "unknown ca."]),
        (
            {"certfile": "expired.crt", "keyfile": "expired.key"},
            [NOT_TRUSTED, NOT_ACCEPTED + "certificate expired."],
        ),
        (
            {"keyfile": "server.key"},
            ["can't be asked: the key in ssl_keyfile is not that of the certificate in ssl_certfile."],
        ),
        (
            {"ca_certs": "extensions"},
            ["can't be asked: ssl_ca_certs, ssl_certfile and ssl_keyfile have to be files in PEM."],
        ),
    ],
    ids=["another authority", "no certificate", "a foreign one", "an expired one", "another's key", "no PEM"],
)
async def test_what_is_wrong_with_certificates(over: Over, files: dict[str, str], says: list[str]) -> None:
    told = await said_of(over.url(**{name: file for name, file in (GOOD | files).items() if file}))
    assert any(told.startswith(expected) for expected in says), told


async def test_what_is_wrong_with_files_names_and_ports(over: Over) -> None:
    missing = over.directory / "missing.crt"
    assert await said_of(over.url(**GOOD | {"certfile": "missing.crt"})) == (
        f"can't be asked: ssl_certfile ({missing}) can't be read."
    )
    assert "can't be asked: ssl_ca_path (" in await said_of(over.url(**GOOD, ca_path="missing"))
    assert await said_of(over.url(**GOOD) + "&ssl_ciphers=none") == (
        "can't be asked: no cipher can be selected: see ssl_ciphers."
    )
    named = over.url(**GOOD).replace("127.0.0.1", "localhost")
    assert await said_of(named) == (
        "shows a certificate that is refused: Hostname mismatch, certificate is not valid for 'localhost'. "
        "The name or address that it is asked by has to be in it."
    )
    plain = over.url(**GOOD).replace(str(over.port), str(over.server.port))
    assert "with TLS on this port" in await said_of(plain, timeout=1)  # it waits for more, and so do we
    told = await said_of(f"redis://127.0.0.1:{over.port}/0")
    assert told == "can't be reached (it hung up): is it running, or does it want TLS (rediss://)?"


async def test_a_server_whose_certificate_has_expired(over: Over) -> None:
    expired = Over(over.directory, "expired")
    try:
        assert "certificate has expired" in await said_of(expired.url(**GOOD))
    finally:
        expired.server.kill()


async def test_files_that_are_replaced(over: Over, connected: Callable[[str], Redis]) -> None:
    """Whatever connected with the old ones takes the new ones; nobody has to start again for it."""

    def replace(name: str) -> None:
        for end in ("crt", "key"):
            shutil.copy(over.directory / f"{name}.{end}", over.directory / f"new.{end}")
            (over.directory / f"new.{end}").rename(over.directory / f"turned.{end}")

    replace("foreign")
    redis = connected(over.url(ca_certs="authority.crt", certfile="turned.crt", keyfile="turned.key"))
    with pytest.raises(errors.ConnectionError):
        await redis.execute_command("PING")
    replace("client")
    assert await redis.execute_command("PING")


async def test_a_server_that_stands_still_is_not_waited_for_in_the_end(over: Over) -> None:
    redis = connect.client(Section(url=over.url(**GOOD), timeout=Duration(10)))
    await redis.execute_command("PING")
    over.server.freeze()
    try:
        await redis.aclose()  # with redis-py's connections a TimeoutError
    finally:
        over.server.thaw()


async def test_an_alert_through_both_services(over: Over, fleets: Fleets, receiver: Receiver) -> None:
    """Each with its own user and over TLS, with a client's certificate."""
    fleet = await fleets(over.server)
    own = [{"REDISPATCH_REDIS_URL": as_user(over.url(**GOOD), role)} for role in ("ingest", "dispatcher")]
    ingest = await fleet.ingest(env=own[0])
    await fleet.dispatcher(env=own[1])
    keys = await fleet.post(ingest, 10)
    await receiver.wait_ids(set(keys))
    await fleet.settled()

"""What `redis.url` may say, and that no password of it is shown."""

from __future__ import annotations

import re

import pytest

from common.redis_url import Kind, RedisUrl, masked, parse
from common.units import Address


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:6379/0",
        "redis://h",
        "rediss://u:p@h:1/15?ssl_ca_certs=/etc/ca.pem",
        "unix:///run/redis.sock?db=1",
        "redis://[::1]:6379",
    ],
)
def test_one_server(url: str) -> None:
    assert parse(url) == RedisUrl(Kind.SERVER, url)


def test_sentinels() -> None:
    told = parse(
        "redis+sentinel://me:p%40ss@h1:1,h2,[::1],[::2]:3/master/2?sentinel_password=s&client_name=c"
    )
    assert told == RedisUrl(
        kind=Kind.SENTINEL,
        plain="redis://me:p%40ss@localhost/2?client_name=c",
        nodes=(Address("h1", 1), Address("h2", 26379), Address("::1", 26379), Address("::2", 3)),
        service="master",
        password="s",
    )


def test_a_service_named_with_a_slash_and_no_database() -> None:
    told = parse("rediss+sentinel://h/team%2Fmaster?sentinel_username=u&sentinel_password=p")
    assert (told.service, told.plain, told.user) == ("team/master", "rediss://localhost/", "u")


def test_cluster() -> None:
    told = parse("rediss+cluster://:secret@h1:7000,h2/0?ssl_cert_reqs=none")
    assert told == RedisUrl(
        kind=Kind.CLUSTER,
        plain="rediss://:secret@localhost/0?ssl_cert_reqs=none",
        nodes=(Address("h1", 7000), Address("h2", 6379)),
    )


@pytest.mark.parametrize("begin", ["rediss://h", "rediss+sentinel://h/master", "rediss+cluster://h"])
def test_versions_of_tls_by_their_names(begin: str) -> None:
    assert parse(f"{begin}?ssl_min_version=TLSv1.3&client_name=c").plain.endswith(
        "?ssl_min_version=772&client_name=c"
    )


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis+sentinel://h1:26379", "expected an address such as redis+sentinel://h1:26379,h2"),
        ("redis+sentinel://h1/master/0/1", "expected an address such as redis+sentinel://"),
        ("redis+sentinel://h1/master/first", "expected an address such as redis+sentinel://"),
        ("redis+sentinel:///master", "'' is no host and port"),
        ("redis+cluster://h1,,h2", "'' is no host and port"),
        ("redis+cluster://h1:0", "'h1:0' is no host and port"),
        ("redis+cluster://h1:port", "'h1:port' is no host and port"),
        ("redis+cluster://::1", "'::1' is no host and port"),
        ("redis+cluster://h1/1", "a Cluster has database 0 only"),
        ("redis+cluster://h1?db=1", "a Cluster has database 0 only"),
        ("redis+cluster://h1?sentinel_password=s", "sentinel_password is no option of it"),
        ("redis+cluster://h1/name", "expected an address such as redis+cluster://h1:7000"),
        ("redis+cluster://h1?ssl=1", "ssl is no option of it; there are client_name, db, ssl_ca_certs"),
        ("redis://h?socket_timeout=1", "socket_timeout is no option of it"),
        ("redis://h?db=one", "db: expected a number"),
        ("rediss://h?ssl_min_version=1.2", "ssl_min_version: expected TLSv1.2 or TLSv1.3"),
        ("rediss+cluster://h?ssl_cert_reqs=some", "ssl_cert_reqs: expected none, optional or required"),
        ("rediss+sentinel://h/m?ssl_check_hostname=maybe", "ssl_check_hostname: expected yes or no"),
        ("redis://h?ssl_ca_certs=a", "ssl_ca_certs is an option of TLS: the address begins with rediss"),
        ("redis+cluster://h?ssl_keyfile=a", "ssl_keyfile is an option of TLS: the address begins with"),
        ("unix:///s?ssl_keyfile=a", "ssl_keyfile is an option of TLS: the address begins with rediss"),
        ("redis://me:12?45@h", "user and password: write ? # / @ in them as"),
        ("redis://me:12#45@h", "user and password: write ? # / @ in them as"),
        ("redis+cluster://me:12?45@h1,h2", "user and password: write ? # / @ in them as"),
        ("redis+other://h1", "expected redis://, rediss:// or unix://"),
    ],
)
def test_what_is_no_address(url: str, expected: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}"):
        parse(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h/0", "redis://h/0"),
        ("redis://u:p@h/0", "redis://u:***@h/0"),
        ("redis+cluster://u:p@[::1]:1,h2", "redis+cluster://u:***@[::1]:1,h2"),
        (
            "redis+sentinel://:p@h1,h2/m/0?sentinel_username=u&sentinel_password=s&client_name=c",
            "redis+sentinel://:***@h1,h2/m/0?sentinel_username=u&sentinel_password=***&client_name=c",
        ),
        ("rediss://h?ssl_password=s", "rediss://h?ssl_password=***"),
        ("unix:///run/s", "unix:///run/s"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert masked(url) == shown

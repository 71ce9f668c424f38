from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher import guard

REFUSED = {
    "0.0.0.0": "unspecified",
    "0.1.2.3": "unspecified",
    "10.0.0.1": "private",
    "100.64.0.1": "private",
    "100.100.100.200": "private",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "168.63.129.16": "metadata",
    "169.254.169.254": "link-local",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.192": "reserved",
    "192.0.2.1": "reserved",
    "192.168.1.1": "private",
    "198.19.255.255": "reserved",
    "203.0.113.9": "reserved",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
    "::": "unspecified",
    "::1": "loopback",
    "::7f00:1": "reserved",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "fe80::1%2": "link-local",
    "fc00::1": "private",
    "fd00:ec2::254": "private",
    "fec0::1": "private",
    "ff02::1": "multicast",
    "100::1": "reserved",
    "2001::1": "reserved",
    "2001:db8::1": "reserved",
    "3fff::1": "reserved",
    "5f00::1": "reserved",
    "64:ff9b:1::1": "reserved",
    "::ffff:127.0.0.1": "loopback",
    "::ffff:169.254.169.254": "link-local",
    "::ffff:0:10.0.0.1": "private",
    "64:ff9b::127.0.0.1": "loopback",
    "64:ff9b::a9fe:a9fe": "link-local",
    "2002:7f00:1::": "loopback",
    "2002:c0a8:0101::1": "private",
}
# Not seen at a connection, where every spelling has become a plain address; refused all the same.
NO_ADDRESS = ["", "localhost", "127.1", "2130706433", "0x7f000001", "017700000001", "0177.0.0.1", "①②⑦.⓪.⓪.①"]
PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1", "192.0.1.1"),
    *("168.63.129.17", "223.255.255.255", "2606:4700::1111", "2a00:1450:4001::1", "2001:4860:4860::8888"),
    *("::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"),
]


@pytest.mark.parametrize(("address", "why"), REFUSED.items())
def test_refused(address: str, why: str) -> None:
    assert guard.why_refused(address) == why
    with pytest.raises(guard.Refused, match=why):
        guard.check(address)


@pytest.mark.parametrize("address", NO_ADDRESS)
def test_what_is_no_plain_address_is_refused(address: str) -> None:
    assert guard.why_refused(address) == "no address"


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert guard.why_refused(address) is None


@given(st.ip_addresses(v=4))
def test_stricter_than_the_standard_library(ip: IPv4Address) -> None:
    if not ip.is_global or ip.is_multicast or ip.is_reserved:
        assert guard.why_refused(str(ip)) is not None


@given(st.sampled_from([n for n, _ in guard._V4]).flatmap(lambda n: st.ip_addresses(network=n)))
def test_an_address_in_another_is_refused_like_the_one_inside(ip: IPv4Address) -> None:
    why = guard.why_refused(str(ip))
    assert why is not None
    carried = [
        IPv6Address(0xFFFF << 32 | int(ip)),
        IPv6Address((0x64FF9B << 96) | int(ip)),
        IPv6Address(0x2002 << 112 | int(ip) << 80 | 1),
    ]
    assert [guard.why_refused(str(outer)) for outer in carried] == [why] * 3


@given(st.ip_addresses(v=6))
def test_only_global_unicast_passes(ip: IPv6Address) -> None:
    if guard.why_refused(str(ip)) is None:
        assert ip in guard._GLOBAL or ip.ipv4_mapped is not None or int(ip) >> 32 == 0x64FF9B << 64


def test_no_socket_for_a_refused_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", lambda *_: pytest.fail("a socket was made"))
    with pytest.raises(guard.Refused):
        guard.open_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80)))
    with pytest.raises(guard.Refused):
        guard.open_socket((socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1%lo", 80, 0, 0)))


def test_a_socket_for_a_public_address() -> None:
    made = guard.open_socket((socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2606:4700::1111", 80, 0, 0)))
    with made:
        assert (made.family, made.type) == (socket.AF_INET6, socket.SOCK_STREAM)


class Names:
    """A resolver of the system's that answers each lookup with the next list."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers: Iterator[list[str]] = iter(answers)

    def __call__(self, host: str, port: int, *_: object, **__: object) -> list[Any]:
        found = []
        for address in next(self.answers):
            v6 = ip_address(address).version == 6
            where = (address, port, 0, 0) if v6 else (address, port)
            found.append((socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_STREAM, 6, "", where))
        return found


@pytest.mark.parametrize(
    "both", [["8.8.8.8", "127.0.0.1"], ["::1", "8.8.8.8"], ["8.8.8.8", "::ffff:10.0.0.1"]]
)
async def test_a_name_with_one_refused_address_is_refused(
    monkeypatch: pytest.MonkeyPatch, both: list[str]
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Names(both, both))
    with pytest.raises(guard.Refused):
        await guard.Resolver(guarded=True).resolve("both.example", 80)
    found = await guard.Resolver(guarded=False).resolve("both.example", 80)
    assert [each["host"] for each in found] == both


async def test_a_name_that_changes_its_mind_is_refused_when_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Names(["8.8.8.8"], ["127.0.0.1"]))
    resolver = guard.Resolver(guarded=True)
    assert [each["host"] for each in await resolver.resolve("rebind.example", 80)] == ["8.8.8.8"]
    with pytest.raises(guard.Refused, match="loopback"):
        await resolver.resolve("rebind.example", 80)


@pytest.mark.parametrize("host", ["x" * 64 + ".example", "a..b"])
async def test_what_is_no_host_name_is_an_os_error(host: str) -> None:
    async with asyncio.timeout(30):
        with pytest.raises(OSError, match="not a host name"):
            await guard.Resolver(guarded=True).resolve(host, 80)


async def test_a_name_without_addresses_is_an_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Names([]))
    with pytest.raises(OSError, match="no address"):
        await guard.Resolver(guarded=True).resolve("empty.example", 80)


def test_ranges_do_not_overlap_by_mistake() -> None:
    networks = [network for network, _ in guard._V4]
    assert all(isinstance(network, IPv4Network) for network in networks)
    assert not [(a, b) for a in networks for b in networks if a is not b and a.overlaps(b)]

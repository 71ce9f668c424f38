"""The address guard: keeps destinations off private networks, at the moment of connecting.

Takes addresses, not URLs: every spelling of one (decimal, hex, mapped, circled digits, a name) has become a
plain address by then, and it is the one that is connected to, so no second lookup can give another.
`Resolver` looks at all addresses of a name, `open_socket` at the one about to be used, literals too. Both
raise Refused.
"""

from __future__ import annotations

import asyncio
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import cast

from aiohttp import AddrInfoType, ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult

from dispatcher.lookup import Lookups

# IANA's special-purpose registries, and what clouds use for metadata; `ipaddress` knows most of it, but what
# it calls global changes between patch releases of Python.
_V4 = [
    (IPv4Network(network), why)
    for network, why in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "private"),  # carrier NAT; 100.100.100.200 is Alibaba's metadata
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "metadata"),  # Azure's
        ("169.254.0.0/16", "link-local"),  # 169.254.169.254 is nearly everybody's metadata
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),  # 192.0.0.192 is Oracle's metadata
        ("192.0.2.0/24", "reserved"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "reserved"),
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
]
_V6 = [
    (IPv6Network(network), why)
    for network, why in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("fc00::/7", "private"),  # fd00:ec2::254 is Amazon's metadata
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),
        ("ff00::/8", "multicast"),
        ("2001::/23", "reserved"),  # Teredo, ORCHID, benchmarking
        ("2001:db8::/32", "reserved"),
        ("3fff::/20", "reserved"),
    )
]
_GLOBAL = IPv6Network("2000::/3")
# An IPv4 address travels in these: where it lies in the 128 bits, counted from the right.
_CARRIERS = [
    (IPv6Network("::ffff:0:0/96"), 0),  # mapped
    (IPv6Network("::ffff:0:0:0/96"), 0),  # translated
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (IPv6Network("2002::/16"), 80),  # 6to4
]


class Refused(OSError):
    """The address is one that destinations may not be on."""


def why_refused(address: str) -> str | None:
    """None for a public address, else the kind of its range; `no address` for what is none."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return "no address"
    return _why_v4(ip) if isinstance(ip, IPv4Address) else _why_v6(ip)


def check(address: str) -> None:
    """Raises Refused unless the address is public."""
    why = why_refused(address)
    if why is not None:
        raise Refused(f"address {address} is refused ({why}); allow_private permits it")


def open_socket(address: AddrInfoType) -> socket.socket:
    """A socket for the address about to be connected to. Raises Refused before there is one."""
    family, kind, protocol, _, where = address
    check(str(where[0]))
    return socket.socket(family, kind, protocol)


class Resolver(AbstractResolver):
    """The system's resolver. A name of which one address is refused is refused whole.

    `guarded` False answers with whatever the system says.
    """

    def __init__(self, guarded: bool) -> None:
        self._system = ThreadedResolver(cast(asyncio.AbstractEventLoop, Lookups()))
        self._guarded = guarded

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """All addresses of a name. Raises OSError, of which Refused is one."""
        try:
            found = await self._system.resolve(host, port, family)
        except UnicodeError:
            raise OSError("not a host name") from None
        if not found:
            raise OSError("no address")
        if self._guarded:
            for address in found:
                check(address["host"])
        return found

    async def close(self) -> None:
        """Nothing to let go of."""
        await self._system.close()


def _why_v4(ip: IPv4Address) -> str | None:
    return next((why for network, why in _V4 if ip in network), None)


def _why_v6(ip: IPv6Address) -> str | None:
    for carrier, shift in _CARRIERS:
        if ip in carrier:
            return _why_v4(IPv4Address(int(ip) >> shift & 0xFFFFFFFF))
    for network, why in _V6:
        if ip in network:
            return why
    return None if ip in _GLOBAL else "reserved"

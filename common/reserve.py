"""An address for several processes that listen on it by themselves (SO_REUSEPORT), kept for them.

Takes `address:port`; holds sockets that are bound and never listen. Raises CannotListen.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self

from common.listen import CannotListen, cannot_listen
from common.units import Address


class Reserved:
    """`with Reserved(listen, setting="ingest.listen") as reserved`: `listen` has the port that it became."""

    def __init__(self, listen: str, *, setting: str) -> None:
        try:
            wanted = Address.parse(listen)
        except ValueError as fault:
            raise CannotListen(f"{setting}: {fault}") from fault
        self._sockets: list[socket.socket] = []
        try:
            for held in _bound(wanted, alone=True):  # fails when another service listens, shared or not
                held.close()
            self._sockets = _bound(wanted, alone=False)
        except OSError as fault:
            raise cannot_listen(listen, setting, fault) from fault
        self.listen = str(Address(wanted.host, self._sockets[0].getsockname()[1]))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        for held in self._sockets:
            held.close()


def _bound(wanted: Address, *, alone: bool) -> list[socket.socket]:
    """A socket for each address of the name; none stays open when one fails."""
    host = wanted.host or None
    found = socket.getaddrinfo(host, wanted.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    made: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            made.append(socket.socket(family, kind, protocol))
            made[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if not alone:
                made[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                made[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made[-1].bind(address)
    except OSError:
        for held in made:
            held.close()
        raise
    return made

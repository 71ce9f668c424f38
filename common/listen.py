"""Where a Site is served: a socket that listens, and the server's end.

Takes a Site (`http.py`) and an address, with TLS or without; returns a Server. Raises CannotListen with a
sentence for a person.
"""

from __future__ import annotations

import asyncio
import logging
import ssl

from aiohttp.http_exceptions import HttpProcessingError

from common.connections import Protocols, room
from common.http import Site
from common.units import Address

KEEPALIVE = 75.0  # seconds; above the usual intervals of senders and the idle time of load balancers
HANDSHAKE = 10.0  # seconds for TLS
BACKLOG = 1024  # connections that wait until they are accepted, if net.core.somaxconn lets so many
LINGER = 2.0  # seconds to read on after a refusal, so that the sender gets to see it


class CannotListen(Exception):
    """The address is taken, not ours, or none."""


class Server:
    """A site that listens; `address` is where, with the port that the system chose."""

    def __init__(self, site: Site, listener: asyncio.Server, protocols: Protocols, address: str) -> None:
        self._site = site
        self._listener = listener
        self._protocols = protocols
        self.address = address

    async def close(self, grace: float) -> None:
        """Accept no more connections, let requests under way finish for `grace` seconds, close them all."""
        self._listener.close()
        await self._site.drain(grace)
        self._protocols.pre_shutdown()
        await self._protocols.shutdown(1)


async def serve(
    site: Site,
    listen: str,
    *,
    setting: str,
    shared: bool = False,
    tls: ssl.SSLContext | None = None,
    keepalive: float = KEEPALIVE,
) -> Server:
    """Listen on `address:port` (port 0: any); `setting` is its name. Raises CannotListen.

    `shared`: with others who do the same, each of whom gets some of the connections. `keepalive`: seconds
    after which a connection without a request is closed.
    """
    try:
        address = Address.parse(listen)
    except ValueError as fault:
        raise CannotListen(f"{setting}: {fault}") from fault
    protocols = Protocols(
        site,
        site.unreadable,
        room(),
        access_log=None,
        logger=_quiet(),
        auto_decompress=False,
        keepalive_timeout=keepalive,
        lingering_time=LINGER,
    )
    try:
        listener = await asyncio.get_running_loop().create_server(
            protocols,
            address.host,
            address.port,
            backlog=BACKLOG,
            reuse_port=shared or None,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else HANDSHAKE,
        )
    except OSError as fault:
        raise cannot_listen(listen, setting, fault) from fault
    where = Address(*listener.sockets[0].getsockname()[:2])
    return Server(site, listener, protocols, str(where))


def cannot_listen(listen: str, setting: str, fault: OSError) -> CannotListen:
    """In a sentence for a person."""
    reason = (fault.strerror or str(fault)).rpartition(": ")[2].lower()
    return CannotListen(f"can't listen on {listen} ({reason}): see {setting}")


class _WithoutNoise(logging.Filter):
    """A client that does not speak HTTP is no fault of ours and gets no traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        fault = record.exc_info[1] if record.exc_info else None
        return not isinstance(fault, HttpProcessingError | ConnectionError)


def _quiet() -> logging.Logger:
    logger = logging.getLogger("http.server")
    logger.addFilter(_WithoutNoise("http.server"))
    return logger

"""One connection: packs commands in C, exchanges a pipeline in one write under one time-out.

Takes what redis-py's connections take; `exchange` returns replies as they are. Raises what redis-py raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, cast

import hiredis
from redis import exceptions as errors
from redis.asyncio import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.connection import AbstractConnection

from common import redis_tls
from common.replies import Replies, heard
from common.trouble import Kind, kind_of

# It is, or may be, a primary no more: whoever looks for it again finds the one there is now.
_MOVED_ON = frozenset((Kind.READONLY, Kind.NOREPLICAS))


FOREVER = 86_400.0  # seconds, where no time-out was set


def moved_on(reply: object) -> bool:
    """Whether this reply tells that the server is not, or soon not, the primary any more."""
    return isinstance(reply, errors.ResponseError) and kind_of(reply) in _MOVED_ON


class QuickConnection(AbstractConnection):
    """The client's own packing, and its time-outs around every part of every command, cost more than all else
    of a batch of hundreds.
    """

    @property
    def usable(self) -> bool:
        """Whether the next command may go over it as it is."""
        return self._writer is not None

    async def exchange(self, commands: Iterable[tuple[Any, ...]]) -> list[Any]:
        """The commands' replies, errors of single ones in their places; whoever gets an error hangs up."""
        self.put(commands)
        await hear((self,))
        return await self.replies()

    def put(self, commands: Iterable[tuple[Any, ...]]) -> None:
        """Send commands without waiting for anything; what was put before has been heard."""
        packed = [hiredis.pack_command(command) for command in commands]
        writer, parser = self._writer, cast(Any, self._parser)
        if writer is None:
            raise errors.ConnectionError("not connected")
        self.coming.expect(len(packed), parser._reader)
        try:
            writer.write(b"".join(packed))
        except (OSError, RuntimeError) as fault:
            raise errors.ConnectionError(str(fault)) from fault

    async def replies(self) -> list[Any]:
        """What was heard. Raises why not all of it was.

        A server that is no primary any more is left.
        """
        told = self.coming.all()
        if self.coming.refused and any(map(moved_on, told)):
            await self.disconnect(nowait=True)
        return told

    async def _connect(self) -> None:
        kind: Any = super()  # abstract and untyped, as far as is known here
        await kind._connect()
        self.coming = Replies(cast(asyncio.StreamWriter, self._writer).transport)

    async def connect_check_health(
        self, check_health: bool = True, retry_socket_connect: bool = True
    ) -> None:
        """Connect, if it is not; one that did not get as far as that is closed again."""
        try:
            await super().connect_check_health(check_health, retry_socket_connect)
        except BaseException:  # cancelled, too: the client would keep it, with replies on their way
            await self.disconnect(nowait=True)
            raise

    async def send_packed_command(
        self, command: bytes | str | Iterable[bytes], check_health: bool = True
    ) -> None:
        """Send what is packed.

        The client's own goes through `wait_for`, which before Python 3.12 loses a cancellation that comes as
        it ends: a task that was told to stop went on for ever.
        """
        if not self.is_connected:
            await self.connect_check_health(check_health=False)
        try:
            await self._write(command)
        except BaseException:  # whatever it was
            await self.disconnect(nowait=True)  # a part may have gone out
            raise

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """One reply; a server that is no primary any more is left."""
        try:
            return await super().read_response(*args, **options)
        except errors.ResponseError as fault:
            if moved_on(fault):
                await self.disconnect(nowait=True)
            raise

    async def _write(self, command: bytes | str | Iterable[bytes]) -> None:
        writer = self._writer
        if writer is None:
            raise errors.ConnectionError("not connected")
        packed = command.encode() if isinstance(command, str) else command
        try:
            async with asyncio.timeout(self.socket_timeout):
                writer.write(packed if isinstance(packed, bytes) else b"".join(packed))
                await writer.drain()
        except TimeoutError as fault:
            raise errors.TimeoutError(f"not written within {self.socket_timeout} s") from fault
        except (OSError, RuntimeError) as fault:  # to uvloop one that broke a moment ago is a RuntimeError
            raise errors.ConnectionError(str(fault)) from fault

    def pack_command(self, *args: Any) -> list[bytes]:
        if " " in args[0]:  # the client's own names for subcommands, such as SCRIPT LOAD
            args = (*args[0].split(), *args[1:])
        return [hiredis.pack_command(args)]


class Tcp(QuickConnection, Connection):
    """Over TCP."""


class Tls(QuickConnection, SSLConnection):
    """Over TCP with TLS."""

    def _connection_arguments(self) -> dict[str, Any]:
        """The client's own context is read again for no connection, and trusts the system's authorities."""
        return {**Connection._connection_arguments(self), "ssl": redis_tls.context(self.ssl_context)}

    async def disconnect(self, *args: Any, **options: Any) -> None:
        """At once: the end of TLS has to be answered, and a server that stands still answers nothing."""
        if self._writer is not None:
            self._writer.transport.abort()
        await super().disconnect(*args, **options)


class Unix(QuickConnection, UnixDomainSocketConnection):
    """Over a unix socket."""


QUICK: dict[type[AbstractConnection], type[QuickConnection]] = {
    Connection: Tcp,
    SSLConnection: Tls,
    UnixDomainSocketConnection: Unix,
}


async def hear(connections: Sequence[QuickConnection], patience: float | None = None) -> None:
    """Wait for the replies to what was put, all under one time-out: `patience` seconds, or what was set."""
    if connections:
        seconds = patience or connections[0].socket_timeout or FOREVER
        await heard([each.coming for each in connections], seconds)


async def ask(connection: QuickConnection, *command: str) -> Any:
    """One command over a connection that is made for it; raises the error it is answered with.

    The stream's way: what comes before anything was sent, the end of it too, may be there before `coming` is.
    """
    try:
        await connection.connect_check_health()
        await connection.send_command(*command)
        return await connection.read_response()
    finally:
        await connection.disconnect(nowait=True)

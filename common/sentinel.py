"""Finds the primary that sentinels know by a name: for each connection that is made, and while it is used.

Takes the sentinels' addresses; gives connections that go to whoever says itself that it is a primary, and are
left when the sentinels name another. Raises redis-py's ConnectionError and TimeoutError, Unknown among them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from redis import exceptions as errors

from common.connection import QuickConnection, Tcp, Tls, ask
from common.trouble import note
from common.units import Address

# Seconds between two looks while it is in use. After a failover that nobody died for, the old primary takes
# writes for another 10 s (a sentinel demotes it then), and all of those are lost.
LOOK = 1.0


class Unknown(errors.ConnectionError):
    """The sentinels do not know a primary; the text says what they do say."""


class Away(Unknown):
    """No sentinel can be asked; what it comes of is a reason, and `trouble` knows which one's that is."""


class Primary:
    """Where the primary is, as the sentinels say. `sentinel` makes a connection to one of them.

    All are asked at once, and as soon as most have answered, theirs are the answers: the newest configuration
    first, by its epoch, so that a sentinel that was cut off is not believed before the others.
    """

    def __init__(
        self, sentinels: Sequence[Address], service: str, sentinel: Callable[[Address], QuickConnection]
    ) -> None:
        self.at: Address | None = None  # the one that was connected to; None when it may be another by now
        self._sentinels = sentinels
        self._service = service
        self._sentinel = sentinel
        self._told: list[tuple[int, Address]] = []  # by epoch, the newest first
        self._epoch = -1  # the newest there was when `at` was found
        self._asked_at = float("-inf")
        self._turn = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None

    async def candidates(self) -> list[Address]:
        """Where it may be, the likeliest first. Those who ask while others do get the same answer."""
        wanted_at = asyncio.get_running_loop().time()
        async with self._turn:
            if self._asked_at < wanted_at:
                began = asyncio.get_running_loop().time()
                self._told = await self._ask_all()
                self._asked_at = began
            return list(dict.fromkeys(address for _, address in self._told))

    def is_at(self, address: Address) -> None:
        """It was found there."""
        self.at, self._epoch = address, max(self._epoch, self._told[0][0])

    def look(self) -> None:
        """See to it that the sentinels are asked from time to time; does not wait."""
        due = asyncio.get_running_loop().time() - self._asked_at > LOOK
        if due and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        try:
            await self.candidates()
        except errors.RedisError:
            self._asked_at = asyncio.get_running_loop().time()  # nobody says that it is elsewhere
        else:
            epoch, address = self._told[0]
            if epoch > self._epoch and address != self.at:
                self.at = None

    async def _ask_all(self) -> list[tuple[int, Address]]:
        asking = [asyncio.create_task(self._ask(sentinel)) for sentinel in self._sentinels]
        told: list[tuple[int, Address]] = []
        faults: list[errors.RedisError] = []
        try:
            for answer in asyncio.as_completed(asking):
                try:
                    told.append(await answer)
                except errors.RedisError as fault:
                    faults.append(fault)
                if len(told) > len(asking) // 2:
                    break
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        if not told:
            faults.sort(key=[task.exception() for task in asking].index)  # as the address has them
            raise self._nobody(faults) from faults[0]
        return sorted(told, key=lambda one: -one[0])

    async def _ask(self, sentinel: Address) -> tuple[int, Address]:
        """The epoch of its configuration, and the primary in it."""
        try:
            flat = await ask(self._sentinel(sentinel), "SENTINEL", "MASTER", self._service)
        except errors.RedisError as fault:
            note(fault, sentinel)
            raise
        try:
            told = dict(zip(flat[::2], flat[1::2], strict=True))
            epoch = int(told[b"config-epoch"])
            if b"failover_in_progress" in told[b"flags"]:
                epoch -= 1  # who leads it has its epoch before the address that belongs to it
            return epoch, Address(told[b"ip"].decode(), int(told[b"port"]))
        except (TypeError, ValueError, LookupError, AttributeError) as fault:
            raise errors.ResponseError(f"what {sentinel} answers is no sentinel's answer") from fault

    def _nobody(self, faults: Sequence[errors.RedisError]) -> Unknown:
        for fault in faults:
            if isinstance(fault, errors.AuthenticationError):
                options = "sentinel_username, sentinel_password"
                return Unknown(f"its sentinels refuse user or password ({_text(fault)}): see {options}")
            if isinstance(fault, errors.ResponseError):
                return Unknown(f"its sentinels tell no primary {self._service!r}: {_text(fault)}")
        return Away(f"none of its sentinels ({len(self._sentinels)}) can be asked: {faults[0]}")


def _text(fault: errors.RedisError) -> str:
    return str(fault).rstrip(".")


class _Found(QuickConnection):
    """Connects to the primary, wherever that is by now."""

    host: str
    port: int

    def __init__(self, *, primary: Primary, **options: Any) -> None:
        self._primary = primary
        self._at: Address | None = None
        super().__init__(**options)

    @property
    def usable(self) -> bool:
        """Not when the primary may be elsewhere by now."""
        self._primary.look()
        return super().usable and self._at == self._primary.at

    async def connect_check_health(
        self, check_health: bool = True, retry_socket_connect: bool = True
    ) -> None:
        """Connect to the first candidate that says it is a primary. Raises what is wrong with the first."""
        if self.usable:
            return
        await self.disconnect(nowait=True)
        fault: errors.RedisError | None = None
        for address in await self._primary.candidates():
            self.host, self.port = address
            try:
                await super().connect_check_health(check_health, retry_socket_connect)
                await self._must_be_primary()
            except (errors.ConnectionError, errors.TimeoutError) as why:
                note(why, address)
                fault = fault or why
            else:
                self._at = address
                self._primary.is_at(address)
                return
        raise fault or Unknown("its sentinels tell no address")

    async def _must_be_primary(self) -> None:
        try:
            (role,) = await self.exchange((("ROLE",),))
        except BaseException:  # whatever it was
            await self.disconnect(nowait=True)
            raise
        if isinstance(role, Exception):
            await self.disconnect(nowait=True)
            raise role
        told = role[0] if isinstance(role, list) and role else role
        if told != b"master":
            await self.disconnect(nowait=True)
            named = told.decode("utf-8", "replace") if isinstance(told, bytes) else "stranger"
            raise errors.ConnectionError(f"{Address(self.host, self.port)} is a {named}, no primary")


class FoundTcp(_Found, Tcp):
    """Over TCP."""


class FoundTls(_Found, Tls):
    """Over TCP with TLS."""

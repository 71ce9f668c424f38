"""Lua scripts: one file per operation, beside the package that runs it, called by digest.

Takes keys and arguments as the file's header says; returns the reply as redis-py gives it (bytes). A
server that forgot its scripts (restart, SCRIPT FLUSH) gets the text again. Raises what redis-py raises.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, TypeAlias

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from common.wire import Wire

Argument: TypeAlias = bytes | str | int
Server: TypeAlias = Redis | Wire


class Script:
    """`Script("dispatcher", "claim")` is `dispatcher/lua/claim.lua`; calling it runs it."""

    def __init__(self, package: str, name: str) -> None:
        self.name = name
        self.text = files(package).joinpath("lua", f"{name}.lua").read_text("utf-8")
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, redis: Server, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """One round trip; a second one when the server has forgotten the script."""
        try:
            return await redis.execute_command("EVALSHA", self.digest, len(keys), *keys, *args)
        except NoScriptError:
            return await redis.execute_command("EVAL", self.text, len(keys), *keys, *args)

    async def load(self, redis: Server) -> None:
        """Make the server know the script, for a pipeline that calls it by digest."""
        await redis.execute_command("SCRIPT", "LOAD", self.text)

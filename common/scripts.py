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

from common.wire import Command, Wire

Argument: TypeAlias = bytes | str | int
Server: TypeAlias = Redis | Wire
Call: TypeAlias = tuple[Sequence[str], Sequence[Argument]]  # keys and arguments


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

    async def several(
        self,
        wire: Wire,
        calls: Sequence[Call],
        *,
        beside: Sequence[Command] = (),
        after: Command | None = None,
    ) -> tuple[list[Any], list[Any]]:
        """Calls in one pipeline, with commands `beside` them: the calls' replies, and those of `after`, one
        or more for each server. Raises the first error that anything was answered with.

        Calls that met a server which has forgotten the script are made again, and only they.
        """
        words = [*beside, *(_words("EVALSHA", self.digest, call) for call in calls)]
        told = await wire.pipeline(words, after)
        forgotten = [place for place, reply in enumerate(told) if isinstance(reply, NoScriptError)]
        if forgotten:
            again = [_words("EVAL", self.text, calls[place - len(beside)]) for place in forgotten]
            replies = await wire.pipeline(again, after)
            told += replies[len(again) :]
            for place, reply in zip(forgotten, replies[: len(again)], strict=True):
                told[place] = reply
        for reply in told:
            if isinstance(reply, Exception):
                raise reply
        return told[len(beside) : len(words)], told[len(words) :]


def _words(name: str, script: str, call: Call) -> Command:
    keys, args = call
    return (name, script, len(keys), *keys, *args)

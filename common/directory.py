"""Objects as files below a directory, for its owner's eyes only: mode 0600 in directories of mode 0700.

One of the two places behind `objects.py`. Takes paths below the directory; what was put is on disk when it
returns, as `fsynced` promises. Raises Away and Missing. Works in threads of its own: a mount that hangs
holds up nobody else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from common.stored import PAGE, Away, Found, Missing

P = ParamSpec("P")
R = TypeVar("R")
THREADS = 8


class Directory:
    """The files below `root`, which is made when it is first needed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._threads = ThreadPoolExecutor(THREADS, "objects")

    @property
    def untouched(self) -> bool:
        """Whether nothing can be there."""
        return not self._root.exists()

    async def put(self, path: str, content: bytes) -> None:
        """A new file; nothing is left of it when that fails."""
        await self._run(_write, self._root / path, content)

    async def get(self, path: str, most: int) -> bytes:
        """The file's content, or its first `most` bytes."""
        return await self._run(_read, self._root / path, most)

    async def delete(self, paths: Sequence[str]) -> None:
        """Those of them that are there."""
        await self._run(_unlink, [self._root / path for path in paths])

    async def pages(self, prefix: str) -> AsyncIterator[list[Found]]:
        """The files in directories of the directory `prefix`."""
        for directory in await self._run(_directories, self._root / prefix):
            found = await self._run(_files, directory, f"{prefix}/{directory.name}")
            for start in range(0, len(found), PAGE):
                yield found[start : start + PAGE]

    async def _run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, lambda: work(*args, **kwargs))
        except OSError as fault:
            raise Away(f"{self._root}: {fault.strerror or type(fault).__name__}") from fault


def _write(file: Path, content: bytes) -> None:
    if not file.parent.is_dir():
        _make(file.parent)
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
        _sync(file.parent)
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def _make(directory: Path) -> None:
    """With all that is missing above it."""
    if directory.is_dir():
        return
    _make(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
    _sync(directory.parent)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read(file: Path, most: int) -> bytes:
    try:
        with file.open("rb") as found:
            return found.read(most)
    except FileNotFoundError:
        if file.parent.is_dir():
            raise Missing from None
        raise  # nothing of its destination's is here: not mounted, or another machine's directory


def _unlink(files: Sequence[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def _directories(above: Path) -> list[Path]:
    try:
        with os.scandir(above) as found:
            return [Path(each.path) for each in found if each.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _files(directory: Path, prefix: str) -> list[Found]:
    files: list[Found] = []
    with os.scandir(directory) as found:
        for each in found:
            if each.is_file(follow_symlinks=False):
                try:
                    changed = each.stat(follow_symlinks=False).st_mtime_ns
                except FileNotFoundError:  # deleted meanwhile
                    continue
                files.append(Found(f"{prefix}/{each.name}", changed // 1_000_000))
    return files

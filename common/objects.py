"""Large alerts outside of Redis: one object per delivery, in a directory or a bucket (`objects.url`).

Beside append, deliver, sweep and the commands for dead letters. Takes the stored form of an alert, gives back
a Reference, and later for that the same bytes, their size and checksum verified. Raises Away and Broken.
Paths are `<namespace>/<destination>/<name>`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Protocol

from common.alert import Alert
from common.directory import Directory
from common.reference import NAME, Reference, refer
from common.stored import PAGE, Away, Broken, Found, scheme

PATIENCE = 5.0  # seconds for one object


class Place(Protocol):
    """Where objects are: a Directory or a Bucket."""

    @property
    def untouched(self) -> bool:
        """Whether nothing can be there."""
        ...

    async def put(self, path: str, content: bytes) -> None:
        """Raises Away."""
        ...

    async def get(self, path: str, most: int) -> bytes:
        """Raises Away and Broken."""
        ...

    async def delete(self, paths: Sequence[str]) -> None:
        """Raises Away."""
        ...

    def pages(self, prefix: str) -> AsyncIterator[list[Found]]:
        """Raises Away."""
        ...


class Objects:
    """The objects of one namespace; opened when they are first needed."""

    def __init__(self, url: str, namespace: str, patience: float = PATIENCE) -> None:
        self._url = url
        self._namespace = namespace
        self._patience = patience

    @property
    def untouched(self) -> bool:
        """Whether nothing can be there. Raises Away."""
        return place(self._url).untouched

    async def put(self, destination: str, alert: Alert, stored: bytes) -> Reference:
        """Keep an alert's stored form, under a name of its own. Raises Away."""
        reference = refer(alert, stored)
        async with self._patiently():
            await place(self._url).put(self._path(destination, reference.object), stored)
        return reference

    async def get(self, destination: str, reference: Reference) -> bytes:
        """What was put. Raises Away, and Broken when it is gone or is something else."""
        async with self._patiently():
            path = self._path(destination, reference.object)
            stored = await place(self._url).get(path, reference.size + 1)
        if not reference.fits(stored):
            raise Broken("its size or its checksum is not that of the reference")
        return stored

    async def delete(self, destination: str, names: Iterable[str]) -> None:
        """Remove those of them that are there. Raises Away."""
        paths = [self._path(destination, name) for name in names]
        for start in range(0, len(paths), PAGE):
            async with self._patiently():
                await place(self._url).delete(paths[start : start + PAGE])

    async def pages(self) -> AsyncIterator[list[tuple[str, str, int]]]:
        """All that is there: destination, name, and when it was written (the store's clock, ms). Raises Away.

        What can't be ours is left out.
        """
        async for page in place(self._url).pages(self._namespace):
            parts = [(found.path.split("/"), found.written_at) for found in page]
            yield [(path[1], path[2], at) for path, at in parts if len(path) == 3 and NAME.fullmatch(path[2])]

    def _path(self, destination: str, name: str) -> str:
        return f"{self._namespace}/{destination}/{name}"

    @asynccontextmanager
    async def _patiently(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._patience):
                yield
        except TimeoutError:
            raise Away(f"no answer within {self._patience:g} s") from None


@cache
def place(url: str) -> Place:
    """The same for the same URL, so that connections and memory are shared. Raises Away."""
    if scheme(url) is None:
        return Directory(Path(url))
    from common.bucket import Bucket  # 70 ms and a few MiB, which most have no use for

    return Bucket(url)

"""Objects in a bucket (`s3://`, `gs://`, `az://`) or in this process's memory, through obstore.

The other of the two places behind `objects.py`. Takes paths; raises Away and Missing. Credentials, region
and endpoint come from the environment, by the names that each provider's own tools use.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import BaseError
from obstore.store import MemoryStore, from_url

from common.stored import PAGE, Away, Broken, Found, Missing

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

LONGEST = 500  # characters of an error
# What comes back within our patience is tried again; the rest is the sender's and the dispatcher's business.
_RETRY: RetryConfig = {
    "max_retries": 2,
    "retry_timeout": timedelta(seconds=3),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=1),
        "base": 2,
    },
}
_CLIENT: ClientConfig = {
    "connect_timeout": timedelta(seconds=2),
    "timeout": timedelta(seconds=5),
    "allow_http": True,  # an endpoint that says http:// is meant
}
_QUERY = re.compile(r"(https?://[^\s?\"')]*)\?[^\s\"')]*")  # a signature may stand there


class Bucket:
    """What is below a URL."""

    untouched = False  # nobody knows without asking

    def __init__(self, url: str) -> None:
        try:
            self._store: Any = (  # whose annotations differ from kind to kind
                MemoryStore()
                if url.startswith("memory:")
                else from_url(url, client_options=_CLIENT, retry_config=_RETRY)
            )
        except (BaseError, ValueError) as fault:
            raise Away(_plain(fault)) from None

    async def put(self, path: str, content: bytes) -> None:
        """A new object, in one request: what breaks off leaves nothing."""
        try:
            await obstore.put_async(self._store, path, content, use_multipart=False)
        except (BaseError, OSError) as fault:
            raise Away(_plain(fault)) from None

    async def get(self, path: str, most: int) -> bytes:
        """The object's content. Raises Broken when it is longer than `most` bytes."""
        try:
            found = await obstore.get_async(self._store, path)
            if found.meta["size"] > most:
                raise Broken(f"it has {found.meta['size']} bytes")
            return bytes(await found.bytes_async())
        except FileNotFoundError:
            await self._ask()
            raise Missing from None
        except (BaseError, OSError) as fault:
            raise Away(_plain(fault)) from None

    async def delete(self, paths: Sequence[str]) -> None:
        """Those of them that are there."""
        try:
            await obstore.delete_async(self._store, list(paths))
        except FileNotFoundError:  # from those that know no deletion of many at once
            await self._ask()
            for path in paths if len(paths) > 1 else ():
                await self.delete([path])
        except (BaseError, OSError) as fault:
            raise Away(_plain(fault)) from None

    async def pages(self, prefix: str) -> AsyncIterator[list[Found]]:
        """All objects below `prefix`."""
        try:
            async for page in obstore.list(self._store, f"{prefix}/", chunk_size=PAGE):
                yield [Found(each["path"], round(each["last_modified"].timestamp() * 1000)) for each in page]
        except (BaseError, OSError) as fault:
            raise Away(_plain(fault)) from None

    async def _ask(self) -> None:
        """Whether the bucket is there at all. Raises Away: without it nothing is known of what was in it."""
        try:
            await obstore.list_with_delimiter_async(self._store, "nothing/is/here")
        except (BaseError, OSError) as fault:
            raise Away(_plain(fault)) from None


def _plain(fault: Exception) -> str:
    """What is wrong, in one line, without what a URL has behind its path."""
    text = " ".join(str(fault).split("\n\n", 1)[0].split()) or type(fault).__name__
    return _QUERY.sub(r"\1?***", text)[:LONGEST]

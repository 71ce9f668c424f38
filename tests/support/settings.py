"""Settings for a test, in one line: `build(server.url, destinations=["pager", "chat"])`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from common.settings import Destination, Redis, Route, Settings
from common.units import Duration


def build(
    url: str = "redis://127.0.0.1:1/0",
    destinations: Sequence[str | Destination] = ("one",),
    routes: Sequence[Route] | None = None,
    **sections: Any,
) -> Settings:
    """The defaults, with destinations (a name alone is a `discard`) that get everything, unless routed.

    It has more patience with the server, which may have to wait for a processor here.
    """
    made = [
        Destination(name=each, type="discard") if isinstance(each, str) else each for each in destinations
    ]
    everything = [Route(to=[each.name for each in made])] if made else []
    return Settings(
        redis=sections.pop("redis", Redis(url=url, timeout=Duration(10))),
        destinations=made,
        routes=everything if routes is None else list(routes),
        **sections,
    )

"""A console in this process, on a free port, and a browser without eyes: cookies, forms, redirects."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from types import TracebackType
from typing import NamedTuple, Self

import aiohttp

from common.listen import serve
from common.settings import Settings, Visitor
from common.units import Secret
from ops.console.desk import Desk
from ops.console.serve import Service


class Page(NamedTuple):
    """What was answered in the end."""

    status: int
    text: str
    headers: dict[str, str]
    url: str

    @property
    def csrf(self) -> str:
        """What its forms carry."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.text)
        assert found, self.text
        return found[1]

    @property
    def words(self) -> str:
        """Without tags, as it is read."""
        bare = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", self.text, flags=re.DOTALL)
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", bare)).split())


class Browser:
    """One visitor; `headers` are sent with each request."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.headers: dict[str, str] = {"Accept": "text/html"}
        self.session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self.session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.session.close()

    async def get(self, path: str, follow: bool = True, **headers: str) -> Page:
        """A page."""
        told = self.headers | headers
        async with self.session.get(self.url + path, headers=told, allow_redirects=follow) as answer:
            return Page(answer.status, await answer.text(), dict(answer.headers), str(answer.url))

    async def post(self, path: str, *pairs: tuple[str, str], **fields: str) -> Page:
        """A form as it is given, and the page that it leads to."""
        return await self._post(path, [*fields.items(), *pairs], follow=True)

    async def answer(self, path: str, *pairs: tuple[str, str], **fields: str) -> Page:
        """A form as it is given, and the first answer."""
        return await self._post(path, [*fields.items(), *pairs], follow=False)

    async def _post(self, path: str, data: list[tuple[str, str]], *, follow: bool) -> Page:
        url, headers = self.url + path, self.headers
        async with self.session.post(url, data=data, headers=headers, allow_redirects=follow) as answer:
            return Page(answer.status, await answer.text(), dict(answer.headers), str(answer.url))

    async def send(self, page: str, path: str, *pairs: tuple[str, str], **fields: str) -> Page:
        """A form of that page."""
        return await self.post(path, *pairs, csrf=(await self.get(page)).csrf, **fields)

    async def sign_in(self, token: str, after: str = "/") -> Page:
        """With a token."""
        return await self.post("/sign-in", token=token, next=after)


class Served:
    """A running console."""

    def __init__(self, service: Service, url: str) -> None:
        self.service = service
        self.url = url

    @property
    def desk(self) -> Desk:
        """What its pages work with."""
        return self.service.desk

    async def look(self) -> None:
        """Look at Redis now, as it does each second, and which destinations there are."""
        self.desk.watch.configure(self.desk.settings)
        await self.desk.watch.look()


@asynccontextmanager
async def console(settings: Settings) -> AsyncIterator[Served]:
    """It has looked once, and looks again when told to."""
    stop = asyncio.Event()
    service = Service(settings, stop)
    server = await serve(service.site, "127.0.0.1:0", setting="console.listen")
    await service.desk.watch.look()
    try:
        yield Served(service, f"http://{server.address}")
    finally:
        stop.set()
        await service.close(server)


def visitor(name: str, token: str, read_only: bool = False) -> Visitor:
    """One who may sign in with that token."""
    return Visitor(name=name, sha256=Secret(sha256(token.encode()).hexdigest()), read_only=read_only)

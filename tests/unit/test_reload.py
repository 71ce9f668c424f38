"""The watch over the configuration: what it hands over, what it refuses, and what it lets pass."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from common import reload
from common.config import Loaded, load_with_places
from common.reload import RESTART, Refused, Watch, changes, keep
from common.settings import Destination, Dispatcher, Ingest, Queue, Redis, Route, Rule, Settings
from common.units import Duration, Size
from dispatcher.destinations import kinds
from tests.support.settings import build

DEADLINE = 30.0
ONE = "destinations: [{name: one, type: discard}]\n"
TWO = "destinations: [{name: one, type: discard}, {name: two, type: discard}]\n"
BROKEN = "destinations: [{name: one, type: nothing}]\nroutes: [{to: [nobody]}]\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks every few milliseconds."""
    monkeypatch.setattr(reload, "EVERY", 0.005)
    monkeypatch.setattr(reload, "CALM", 0.001)


def put(file: Path, text: str) -> None:
    """As an editor does: a new file in the place of the old one, never a part of one."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)


class Service:
    """What is watched for: it takes settings, unless it is told to refuse them."""

    def __init__(self, watch: Watch, settings: Settings, hurry: asyncio.Event) -> None:
        self.watch = watch
        self.hurry = hurry
        self.refuses: str | None = None
        self.bug: Exception | None = None
        self.settings = settings
        self._taken: asyncio.Queue[Settings] = asyncio.Queue()
        self._failed: asyncio.Queue[bool] = asyncio.Queue()

    async def take(self, settings: Settings) -> None:
        if self.refuses is not None:
            raise Refused(self.refuses)
        if self.bug is not None:
            raise self.bug
        self._taken.put_nowait(settings)

    def failed(self, failed: bool) -> None:
        self._failed.put_nowait(failed)

    async def names(self) -> list[str]:
        """Of the destinations that are taken next."""
        async with asyncio.timeout(DEADLINE):
            return [destination.name for destination in (await self._taken.get()).destinations]

    async def next(self) -> Settings:
        async with asyncio.timeout(DEADLINE):
            return await self._taken.get()

    async def read(self, failed: bool) -> None:
        """Until a look has read the file, and that was what came of it."""
        async with asyncio.timeout(DEADLINE):
            while await self._failed.get() is not failed:
                pass

    @property
    def took_nothing(self) -> bool:
        return self._taken.empty()


Follow: TypeAlias = Callable[..., AbstractAsyncContextManager[Service]]


@pytest.fixture
def follow(tmp_path: Path) -> Follow:
    """`async with follow(text) as service`: a watch over `path`, or `tmp_path/c.yaml`, which holds that."""

    @asynccontextmanager
    async def following(
        text: str, path: Path | None = None, name: str = "dispatcher"
    ) -> AsyncIterator[Service]:
        path = path or tmp_path / "c.yaml"
        if not path.is_symlink():
            path.write_text(text)
        read: Callable[[], Loaded] = partial(load_with_places, str(path), {}, kinds=kinds)
        loaded, hurry = read(), asyncio.Event()
        service = Service(Watch(name, loaded, read, hurry), loaded.settings, hurry)
        task = asyncio.create_task(service.watch.follow(loaded.settings, service.take, service.failed))
        try:
            yield service
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return following


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """The fields of the log's lines of that event."""
    return [vars(line)["fields"] for line in caplog.records if line.message == event]


async def test_a_changed_file_is_handed_over(
    follow: Follow, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with follow(ONE) as service:
        await service.read(
            failed=False
        )  # what was written between the start and the first look is not missed
        assert service.took_nothing
        put(tmp_path / "c.yaml", TWO)
        assert await service.names() == ["one", "two"]
        await service.read(failed=False)
    assert told(caplog, "config_reloaded") == [{"changes": "destinations.two added"}]


async def test_what_changed_before_the_first_look_is_seen(follow: Follow, tmp_path: Path) -> None:
    async with follow(ONE) as service:
        put(tmp_path / "c.yaml", TWO)
        assert await service.names() == ["one", "two"]


async def test_a_config_map_is_a_link_to_a_link(follow: Follow, tmp_path: Path) -> None:
    """As Kubernetes mounts it: `c.yaml -> ..data/c.yaml`, `..data -> ..one`, and `..data` is swapped."""
    for name, text in (("..one", ONE), ("..two", TWO)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "c.yaml").write_text(text)
        os.utime(tmp_path / name / "c.yaml", ns=(10**18, 10**18))
    (tmp_path / "..data").symlink_to("..one")
    (tmp_path / "c.yaml").symlink_to("..data/c.yaml")
    async with follow("", tmp_path / "c.yaml") as service:
        await service.read(failed=False)
        (tmp_path / "..tmp").symlink_to("..two")
        (tmp_path / "..tmp").rename(tmp_path / "..data")
        assert await service.names() == ["one", "two"]


async def test_an_editor_that_writes_in_place(follow: Follow, tmp_path: Path) -> None:
    async with follow(ONE) as service:
        await service.read(failed=False)
        with (tmp_path / "c.yaml").open("r+") as file:
            file.write(TWO)
        assert await service.names() == ["one", "two"]


async def test_the_same_content_is_not_read_again(follow: Follow, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    async with follow(ONE) as service:
        await service.read(failed=False)
        os.utime(file, ns=(10**18, 10**18))
        assert not await service.watch._worth_reading(False)
        put(file, ONE)  # another file
        assert not await service.watch._worth_reading(False)
        assert service._failed.empty()


async def test_a_file_that_is_missing_for_one_look_is_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    put(file, ONE)
    read: Callable[[], Loaded] = partial(load_with_places, str(file), {}, kinds=kinds)
    watch = Watch("dispatcher", read(), read, asyncio.Event())
    assert await watch._worth_reading(False)
    for _ in range(2):  # each time anew
        file.rename(tmp_path / "away")
        assert not await watch._worth_reading(False)
        (tmp_path / "away").rename(file)
        assert await watch._worth_reading(False)
    file.unlink()
    assert not await watch._worth_reading(False)
    assert await watch._worth_reading(False)


async def test_a_file_that_stays_away_is_told_once(
    follow: Follow, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with follow(ONE) as service:
        (tmp_path / "c.yaml").unlink()
        for _ in range(3):
            await service.read(failed=True)
        [refused] = told(caplog, "config_refused")
        assert "c.yaml: can't be read" in refused["faults"]
        put(tmp_path / "c.yaml", ONE)
        await service.read(failed=False)
        assert service.took_nothing
    assert told(caplog, "config_reloaded")[-1] == {"changes": "nothing"}


async def test_a_broken_one_is_refused_whole_and_told_once(
    follow: Follow, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    file = tmp_path / "c.yaml"
    async with follow(ONE) as service:
        put(file, BROKEN)
        for _ in range(3):
            await service.read(failed=True)
        put(file, "destinations: [")  # another fault
        while len(told(caplog, "config_refused")) < 2:
            await service.read(failed=True)
        assert service.took_nothing
        put(file, TWO)
        assert await service.names() == ["one", "two"]
        await service.read(failed=False)
    first, second = (line["faults"] for line in told(caplog, "config_refused"))
    assert "destinations[0].type" in first
    assert "; " in first
    assert "routes[0].to[0]" in first
    assert "is not YAML" in second


async def test_what_the_service_refuses_is_tried_again(
    follow: Follow, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What it refuses it for may be elsewhere: a certificate, say."""
    async with follow(ONE) as service:
        service.refuses = "destination two can't be made"
        put(tmp_path / "c.yaml", TWO)
        for _ in range(3):
            await service.read(failed=True)
        service.refuses = None
        assert await service.names() == ["one", "two"]
        await service.read(failed=False)
    assert [line["faults"] for line in told(caplog, "config_refused")] == ["destination two can't be made"]


async def test_a_bug_ends_nothing(follow: Follow, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with follow(ONE) as service:
        await service.read(failed=False)
        service.bug = RuntimeError("out of mind")
        put(tmp_path / "c.yaml", TWO)
        for _ in range(3):
            await service.read(failed=True)
        [line] = [line for line in caplog.records if line.message == "config_refused"]
        assert line.exc_info is not None
        assert vars(line)["fields"] == {"faults": "internal: RuntimeError"}
        service.bug = None
        assert await service.names() == ["one", "two"]


async def test_sighup_looks_at_once(
    follow: Follow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(reload, "EVERY", 3600)
    async with follow(ONE) as service:
        put(tmp_path / "c.yaml", TWO)
        service.hurry.set()
        assert await service.names() == ["one", "two"]
        await service.read(failed=False)
        service.hurry.set()  # and it is answered, although nothing has changed
        await service.read(failed=False)
    changed = [line["changes"] for line in told(caplog, "config_reloaded")]
    assert changed == ["destinations.two added", "nothing"]


async def test_the_files_of_secrets_are_looked_at(follow: Follow, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    put(secret, "whsec_" + "a" * 32)
    hook = "{name: hook, type: webhook, url: 'http://a.example/', secrets: ['file:secret']}"
    async with follow(f"destinations: [{hook}]\n") as service:
        await service.read(failed=False)
        put(secret, "whsec_" + "b" * 32)
        assert (await service.next()).destinations != service.settings.destinations
        secret.unlink()
        await service.read(failed=True)
        put(secret, "whsec_" + "c" * 32)
        await service.next()


async def test_what_waits_for_a_restart_keeps_its_value_and_is_told_once(
    follow: Follow, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, redis = tmp_path / "c.yaml", "redis: {url: 'redis://127.0.0.1:1/0'}\n"
    async with follow(redis + ONE) as service:
        other = "redis: {url: 'redis://127.0.0.1:2/0', namespace: other}\n"
        put(file, other + TWO)
        taken = await service.next()
        assert (taken.redis, len(taken.destinations)) == (service.settings.redis, 2)
        await service.read(failed=False)
        put(file, other + ONE)
        await service.next()
        await service.read(failed=False)
    waits = [line["settings"] for line in told(caplog, "config_waits_for_restart")]
    assert waits == ["redis.url, redis.namespace"]


def test_what_is_kept_exists() -> None:
    """A setting that is renamed has to be renamed there, too."""
    for names in RESTART.values():
        kept, waiting = keep(Settings(), Settings(), names)
        assert (kept, waiting) == (Settings(), [])


def test_keep() -> None:
    old = Settings(redis=Redis(namespace="a"), dispatcher=Dispatcher(drain_timeout=Duration(1)))
    new = Settings(redis=Redis(namespace="b"), dispatcher=Dispatcher(drain_timeout=Duration(2)))
    kept, waiting = keep(old, new, ["redis.url", "redis.namespace"])
    assert waiting == ["redis.namespace"]
    assert (kept.redis.namespace, kept.dispatcher.drain_timeout) == ("a", Duration(2))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (build(), build(), []),
        (
            build(),
            build(ingest=Ingest(max_alert=Size(1), max_body=Size(2))),
            ["ingest.max_body", "ingest.max_alert"],
        ),
        (build(routes=[]), build(), ["routes"]),
        (build(queue=Queue(max_dead=1)), build(), ["queue.max_dead"]),
        (
            build(destinations=["a", "b"], routes=[]),
            build(destinations=[Destination(name="b", type="stdout"), "c"], routes=[]),
            ["destinations.a removed", "destinations.b", "destinations.c added"],
        ),
        (
            build(destinations=["a", "b"], routes=[]),
            build(destinations=["b", "a"], routes=[]),
            ["destinations"],
        ),
        (
            build(rules=[Rule(name="disk", metric="disk", when="> 1")], routes=[Route(to=["one"])]),
            build(rules=[Rule(name="disk", metric="disk", when="> 2")], routes=[Route(to=["one"])]),
            ["rules.disk"],
        ),
    ],
)
def test_changes(old: Settings, new: Settings, expected: list[str]) -> None:
    assert changes(old, new) == expected

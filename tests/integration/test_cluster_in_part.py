"""`redispatch status` and the console while one server of a Cluster is away: the others' are seen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from common import keys
from common.settings import Destination
from tests.support.cluster import Cluster, slot_of
from tests.support.console import Browser, console
from tests.support.ops import Command
from tests.support.servers import Server
from tests.support.settings import build

NAMES = ("one", "two", "three", "four", "five")
PATIENT = 60_000  # ms until the others say that a server failed, and then that the Cluster is down


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster("valkey", tmp_path / "cluster", timeout=PATIENT).start()
    yield made
    made.close()


def owner(cluster: Cluster, name: str) -> Server:
    return cluster.owner(slot_of(f"{{redispatch:{name}}}"))


def test_what_is_seen_while_one_server_is_away(cluster: Cluster, tmp_path: Path) -> None:
    redispatch = Command(tmp_path, cluster.nodes[0], NAMES)
    redispatch.sections["redis"]["url"] = cluster.url
    before = redispatch.json("status")
    assert [one["name"] for one in before["destinations"]] == list(NAMES)
    gone = cluster.owner(slot_of(keys.destinations("redispatch")))  # which are there is not known, either
    away = [name for name in NAMES if owner(cluster, name) is gone]
    assert 0 < len(away) < len(NAMES), "other names, please"
    asyncio.run(in_the_console(cluster, gone, away))

    told = redispatch.json("status", code=1)
    assert (before["redis"].keys(), told["redis"].keys()) == ({"url"}, {"url", "error"})
    there = [one for one in told["destinations"] if "error" not in one]
    assert there == [one for one in before["destinations"] if one["name"] not in away]
    assert [one["destination"] for one in told["ledger"]] == [one["name"] for one in there]
    unseen = [one for one in told["destinations"] if "error" in one]
    assert [one["name"] for one in unseen] == away
    assert unseen[0].keys() == {*there[0], "error"}
    assert unseen[0]["gate"].keys() == there[0]["gate"].keys()
    assert "connection refused" in unseen[0]["error"].lower()
    shown = redispatch("status", code=1).output
    assert "not seen" in shown
    assert f"{away[0]} was not seen: Redis at " in shown
    assert "which destinations left the configuration was not seen: " in shown


async def in_the_console(cluster: Cluster, gone: Server, away: list[str]) -> None:
    """It has seen all; then that server is killed."""
    settings = build(cluster.url, [Destination(name=name, type="discard") for name in NAMES])
    async with console(settings) as served, Browser(served.url) as browser:
        assert "Nothing is lost: all" in (await browser.get("/")).words
        gone.kill()
        await served.look()
        page = await browser.get("/")
        assert f"Not seen now: {', '.join(away)}; the others are." in page.words
        assert page.words.count("Not seen since ") == len(away)
        assert f"{len(away)} not seen." in page.words
        board = served.desk.watch.board
        seen = {name: board[f"{name}/gate"] for name in NAMES}
        assert seen == {name: "not seen" if name in away else "open" for name in NAMES}
        assert (board["all/redis"], board["all/ledger_state"]) == ("", "unknown")
        assert (await browser.get("/work")).status == 200
    async with console(settings) as served, Browser(served.url) as browser:  # one that never saw them
        assert "Not seen now: " in (await browser.get("/")).words
        assert [one.snapshot.destination for one in served.desk.watch.seen] == [
            name for name in NAMES if name not in away
        ]
        assert (await browser.get(f"/destination?name={away[0]}")).status == 503

"""A running ingest and whatever can be made up: by schemathesis from its OpenAPI document, and by hand."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from common import keys
from ingest.operations import POSTED
from tests.support.fleet import AT, NAMESPACE, Fleet, Fleets, Running
from tests.support.samples import SAMPLES, malformed
from tests.support.servers import Server

HOOK = {"name": "any", "items": "alerts", "alert": {"host": "host", "name": "name"}}
RULE = {"name": "full", "metric": "disk", "when": ">= 100", "clear": "< 90"}
# A batch of which a part is wrong is 207. What is right by its schema may be wrong all the same: a schema
# can't say what a time is, or that a reading has a value.
CONFIG = """
request-timeout = 60
suppress-health-check = ["all"]

[parameters]
"path.name" = "any"
"path.key" = "{key}"

[checks.positive_data_acceptance]
enabled = false

[checks.negative_data_rejection]
expected-statuses = [207, 400, 401, 404, 405, 408, 413, 415, 417]
"""
# Some 1,480 cases are made for the borders of all types, and 10 times as many as this at random.
AT_RANDOM = 66 if "CI" in os.environ else 4
LEAST = 2000 if "CI" in os.environ else 1400
SEED = ("--seed", "1") if "CI" in os.environ else ()  # there the same ones each time, elsewhere others
ENCODINGS = {".gz": "gzip", ".bin": "deflate"}
MALFORMED = sorted(file.name for file in (SAMPLES / "malformed").iterdir())
GROWTH = 16 * 2**20  # bytes of memory that are noise; usually there are two million


async def running(fleets: Fleets, server: Server) -> tuple[Fleet, Running]:
    fleet = await fleets(server, hooks=[HOOK], rules=[RULE])
    return fleet, await fleet.ingest()


def memory(ingest: Running) -> int:
    return int(psutil.Process(ingest.process.pid).memory_info().rss)


async def sound(fleet: Fleet, ingest: Running) -> None:
    """Nothing unexpected was logged, and what was counted as queued is there, whole."""
    assert [line for line in ingest.process.err if '"level":"error"' in line] == []
    seen = await fleet.snapshot()
    assert seen.unaccounted == 0
    assert seen.ledger.accepted == await ingest.metric("redispatch_alerts_total", outcome="queued")
    assert seen.waiting == seen.ledger.accepted
    assert sum(1 for _ in records(fleet.server)) == seen.ledger.accepted


def records(server: Server) -> list[str]:
    """Keys of all records."""
    return [str(key) for key in server.cli("KEYS", keys.record(NAMESPACE, "hook", "*"))]


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_schemathesis_finds_nothing(fleets: Fleets, valkey: Server, tmp_path: Path) -> None:
    fleet, ingest = await running(fleets, valkey)
    [key] = await fleet.post(ingest)
    file = tmp_path / "schemathesis.toml"
    file.write_text(CONFIG.format(key=key))
    tested = await fleet.processes.start(
        *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(file), "run"),
        *("--no-color", "--phases", "examples,coverage,fuzzing", "--max-examples", str(AT_RANDOM), *SEED),
        f"{ingest.url}/openapi.json",
    )
    code = await tested.wait_exit(580)
    assert code == 0, tested.text
    [made] = re.findall(r"(\d+) generated", tested.text)
    assert int(made) >= LEAST
    await sound(fleet, ingest)


async def post(ingest: Running, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
    async with ingest.http.post(ingest.url + path, data=body, headers=headers) as answer:
        assert answer.content_type in ("application/json", "application/problem+json")
        return answer.status, await answer.json(content_type=None)


async def post_all(fleet: Fleet, ingest: Running) -> None:
    """Every malformed body to every route; what is refused has stored nothing."""
    for name in MALFORMED:
        encoding = ENCODINGS.get(Path(name).suffix)
        headers = {"Content-Type": "application/json"} | ({"Content-Encoding": encoding} if encoding else {})
        for route in POSTED:
            before = valkey_depth(fleet)
            status, told = await post(ingest, route.replace("{name}", "any"), malformed(name), headers)
            assert status < 500, (name, route, told)
            if status >= 400 and not told.get("accepted"):
                assert valkey_depth(fleet) == before, (name, route, told)


def valkey_depth(fleet: Fleet) -> tuple[int, int]:
    return int(fleet.server.cli("XLEN", AT.stream)), int(fleet.server.cli("DBSIZE"))


async def test_malformed_bodies_store_nothing_by_half_and_leave_no_memory(
    fleets: Fleets, valkey: Server
) -> None:
    fleet, ingest = await running(fleets, valkey)
    await post_all(fleet, ingest)  # what is loaded when it is first needed is loaded now
    await post_large(ingest)
    before = memory(ingest)
    for _ in range(3):
        await post_all(fleet, ingest)
    await post_large(ingest)
    assert memory(ingest) - before < GROWTH
    await sound(fleet, ingest)


async def post_large(ingest: Running) -> None:
    """Bodies of a megabyte that never end."""
    large = b'[{"host":"h","name":"n","summary":"' + b"x" * 900_000
    for _ in range(20):
        assert (await post(ingest, "/v1/alerts", large, {"Content-Type": "application/json"}))[0] == 400

"""A real Prometheus with the repository's own configuration, that scrapes running services each second.

`started(processes, ingest=[...], dispatcher=[...])` takes their URLs; it is asked through its API. A missing
one skips the test here and fails it when `CI` is set.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import yaml

from tests.rules.pages import ROOT
from tests.support.fleet import Running, eventually
from tests.support.processes import Processes, wait_ready
from tests.support.senders import installed
from tests.support.servers import free_port

LOOK = 0.1  # seconds between two looks at what changes once a second
OURS = ROOT / "grafana" / "prometheus"


class Prometheus:
    """Where it listens, and what it says."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self._http = http

    async def ask(self, path: str, **parameters: str | list[str]) -> Any:
        """`data` of an answer of its API; an error is told with the query."""
        pairs = [
            (name, value)
            for name, values in parameters.items()
            for value in ([values] if isinstance(values, str) else values)
        ]
        async with self._http.get(f"{self.url}/api/v1/{path}", params=pairs) as answer:
            told = await answer.json()
        assert told["status"] == "success", (parameters, told)
        return told["data"]

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """The vector that an expression is now; a scalar is a vector of one."""
        told = await self.ask("query", query=expression)
        if told["resultType"] == "scalar":
            return [{"metric": {}, "value": told["result"]}]
        return list(told["result"])

    async def value(self, expression: str) -> float:
        """Of an expression with one result; NaN when there is none."""
        found = await self.query(expression)
        assert len(found) <= 1, (expression, found)
        return float(found[0]["value"][1]) if found else float("nan")

    async def raised(self, alarm: str) -> dict[str, str]:
        """Until that alarm of ours is raised, once; its labels."""
        expression = f'ALERTS{{alertstate="firing",alertname="Redispatch{alarm}"}}'
        [found] = await self.wait(expression)
        return dict(found["metric"])

    async def over(self, alarm: str) -> None:
        """Until it is no longer raised."""
        await self.wait(f'absent(ALERTS{{alertstate="firing",alertname="Redispatch{alarm}"}})')

    async def wait(self, expression: str, deadline: float = 60.0) -> list[dict[str, Any]]:
        """The first answer to a comparison that is not empty."""

        async def look() -> list[dict[str, Any]]:
            found = await self.query(expression)
            if not found:
                await asyncio.sleep(LOOK)
            return found

        return list(await eventually(look, expression, deadline))


async def started(
    processes: Processes,
    http: aiohttp.ClientSession,
    *,
    rules: Path = OURS / "rules.yaml",
    **jobs: Sequence[Running],
) -> Prometheus:
    """With `rules` and our jobs `redispatch-<name>`, whose addresses are replaced by those of services."""
    program = installed("prometheus")
    content = yaml.safe_load((OURS / "prometheus.yaml").read_text("utf-8"))
    content["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    assert content["rule_files"] == ["rules.yaml"]
    content["rule_files"] = [str(rules)]
    for job in content["scrape_configs"]:
        del job["dns_sd_configs"]
        job["static_configs"] = [_targets(jobs[job["job_name"].removeprefix("redispatch-")])]
    config = processes.config(content, "prometheus.yaml")
    listen = f"127.0.0.1:{free_port()}"
    process = await processes.start(
        *(program, f"--config.file={config}", f"--storage.tsdb.path={processes.directory / 'tsdb'}"),
        f"--web.listen-address={listen}",
    )
    await wait_ready(f"http://{listen}/-/ready", process)
    return Prometheus(f"http://{listen}", http)


def hasty(processes: Processes) -> Path:
    """Our rules in seconds instead of minutes: raised at once, and what looks back looks back 8 s."""
    text = (OURS / "rules.yaml").read_text("utf-8")
    for pattern, instead in (
        (r"for: \d+m", "for: 0s"),
        (r"\[15m\]", "[8s]"),
        (r"> (600|120)\b", "> 2"),
        (r"> 180\b", "> 5"),
    ):
        text, count = re.subn(pattern, instead, text)
        assert count, pattern
    return processes.config(text, "hasty.yaml")


def _targets(services: Sequence[Running]) -> Mapping[str, Any]:
    """With the label that a cluster gives them."""
    addresses = [urlsplit(service.url).netloc for service in services]
    return {"targets": addresses, "labels": {"namespace": "here"}}

"""Every query of every panel, and every rule, asked of a real Prometheus that scrapes services in trouble."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from grafana import generate
from grafana.destination import GATES
from tests.rules.pages import ROOT
from tests.support.fleet import Fleet, Fleets, Running, eventually
from tests.support.processes import Processes
from tests.support.prometheus import Prometheus, started
from tests.support.receiver import Answer, Receiver, Request
from tests.support.servers import Server

VALUES = {
    "namespace": ".*",
    "job": ".*",
    "destination": ".*",
    "__rate_interval": "30s",
    "__range": "5m",
}
# Panels that leave out what did not happen, when nothing of it has.
NONE_HERE = {"redis: Errors"}
# Rules of which the cause is there when they are asked.
RAISED = {
    "RedispatchDeadLettersGrow",
    "RedispatchGateClosed",
    "RedispatchQueueNearLimit",
    "RedispatchRedisUnsafe",
}


def panels() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Of all dashboards, as they are committed, with their queries; rows are no panels."""
    for name in generate.DASHBOARDS:
        for panel in json.loads(generate.file(name).read_text("utf-8"))["panels"]:
            if panel["type"] != "row":
                yield f"{name}: {panel['title']}", panel["targets"]


def filled(text: str) -> str:
    """With the variables' values, and none left."""
    text = re.sub(r"\$(?:{(\w+)}|(\w+))", lambda found: VALUES[found[1] or found[2]], text)
    assert "$" not in text
    return text


class Script:
    """What the receiver answers: each name of an alert has its own way to fail."""

    def __init__(self) -> None:
        self.status = {"fine": 200, "refused": 400, "broken": 500, "gone": 410}

    def __call__(self, request: Request) -> Answer:
        return Answer(self.status[request.json()["data"]["name"]])


def backlog() -> str:
    """What KEDA asks, here without a namespace: nothing adds that label."""
    text = (ROOT / "k8s" / "overlays" / "keda" / "scaled-object.yaml").read_text("utf-8")
    query: str = yaml.safe_load(text)["spec"]["triggers"][0]["metadata"]["query"]
    return query.replace('{namespace="redispatch"}', "")


async def post(fleet: Fleet, ingest: Running, name: str, count: int) -> None:
    for _ in range(count):
        status, told = await fleet.send(ingest, fleet.alert() | {"name": name})
        assert status == 201, told


async def in_trouble(fleet: Fleet, ingest: Running, prometheus: Prometheus) -> None:
    """Delivered, dead, retrying, and in the end behind a closed gate; a request that is refused, too."""
    await post(fleet, ingest, "fine", 5)
    await post(fleet, ingest, "refused", 3)
    await post(fleet, ingest, "broken", 2)
    await fleet.wait_snapshot(
        lambda seen: (seen.dead_letters, seen.retrying) == (3, 2), "three dead, two retrying"
    )
    await prometheus.wait(f"({backlog()}) == 2")
    await post(fleet, ingest, "gone", 5)
    await fleet.wait_snapshot(lambda seen: seen.gate.get("state") == "gone", "a closed gate")
    await fleet.wait_snapshot(lambda seen: seen.in_flight == 0, "all handed back")
    await post(fleet, ingest, "fine", 3)
    async with fleet.http.post(ingest.url + "/v1/alerts", json={"host": 7}) as answer:
        assert answer.status == 400


async def check_panels(prometheus: Prometheus) -> None:
    """An answer for each query, with the labels of its legend, also over time."""
    for where, targets in panels():
        for target in targets:
            expression = filled(target["expr"])
            if where in NONE_HERE:
                expression = expression.removesuffix(" > 0")
            found = await prometheus.wait(expression)  # without an answer only where a scrape came too late
            wanted = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            for one in found:
                assert set(one["metric"]) == wanted, f"{where}: {one['metric']} for {target['legendFormat']}"
    now = await prometheus.value("time()")
    for where, targets in panels():
        for target in targets:
            span = {"start": str(now - 10), "end": str(now), "step": "1"}
            told = await prometheus.ask("query_range", query=filled(target["expr"]), **span)
            assert told["result"] or where in NONE_HERE, f"{where}: nothing over time"


async def check_variables(prometheus: Prometheus) -> None:
    """Each finds values."""
    for name in generate.DASHBOARDS:
        for variable in json.loads(generate.file(name).read_text("utf-8"))["templating"]["list"]:
            if variable["type"] == "query":
                asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"])
                assert asked, variable["query"]
                metric, label = asked.groups()
                values = await prometheus.ask(f"label/{label}/values", **{"match[]": metric})
                assert values, (name, variable["name"])
                assert label == variable["name"]


async def check_rules(prometheus: Prometheus) -> set[str]:
    """Each was evaluated; the names of those whose cause is there."""
    told = await prometheus.ask("rules")
    rules = [rule for group in told["groups"] for rule in group["rules"]]
    assert len(rules) > 10
    raised = set()
    for rule in rules:
        assert (rule["health"], rule.get("lastError", "")) == ("ok", ""), rule
        if await prometheus.query(rule["query"]):
            raised.add(rule["name"])
        for alert in rule["alerts"]:
            texts = " ".join(alert["annotations"].values())
            assert "<no value>" not in texts, texts
            assert "error" not in texts, texts
    return raised


async def check_figures(prometheus: Prometheus, fleet: Fleet) -> None:
    """What is the same on both dispatchers is told once, and what each counts is summed up."""
    told = dict(panels())

    async def shown(title: str) -> float:
        return await prometheus.value(filled(told[f"destination: {title}"][0]["expr"]))

    async def figures() -> bool:
        seen = await fleet.snapshot()
        wanted = {"Depth": seen.depth, "Retrying": seen.retrying, "Dead letters": 3}
        return {title: await shown(title) for title in wanted} == wanted

    await eventually(figures, "the queue's figures in Prometheus")
    [gate] = await prometheus.wait(filled(told["destination: Gate"][0]["expr"]))
    assert GATES[int(float(gate["value"][1]))][0] == "gone"
    for outcome, count in (("delivered", "== 5"), ("rejected", "== 3"), ("failed", "== 2"), ("gone", ">= 3")):
        await prometheus.wait(f'sum(redispatch_attempts_total{{outcome="{outcome}"}}) {count}')


async def test_every_query_has_an_answer(
    fleets: Fleets, valkey: Server, receiver: Receiver, processes: Processes
) -> None:
    script = Script()
    receiver.default = script
    # So long that none is due meanwhile, however little of it the jitter leaves.
    retry = {"preset": "webhook", "base": "3000d", "cap": "3000d", "max_age": "3600d"}
    fleet = await fleets(
        valkey,
        destination={"retry": retry},
        queue={"max_depth": 12},
        canary={"every": "1s"},
        dispatcher={"visibility_timeout": "60s"},  # neither takes the other for dead on a busy machine
    )
    ingest, *dispatchers = await asyncio.gather(fleet.ingest(), fleet.dispatcher(), fleet.dispatcher())
    prometheus = await started(processes, fleet.http, ingest=[ingest], dispatcher=dispatchers)
    await prometheus.wait("count(up == 1) == 3")
    await prometheus.wait("count(redispatch_dead_letters == 0) == 2")
    await in_trouble(fleet, ingest, prometheus)
    depth = (await fleet.snapshot()).depth
    await prometheus.wait(f"count(redispatch_queue_depth == {depth}) == 2")
    await prometheus.wait("max(increase(redispatch_dead_total[15m])) > 0")
    await prometheus.wait('ALERTS{alertname="RedispatchGateClosed"}')
    await prometheus.wait("max(redispatch_canary_last_success_timestamp_seconds) > 0")
    await prometheus.wait(f"({backlog()}) == 0")  # behind a closed gate
    await check_figures(prometheus, fleet)
    await check_panels(prometheus)
    await check_variables(prometheus)

    async def raised() -> bool:
        return await check_rules(prometheus) == RAISED

    await eventually(raised, "the rules whose cause is there")

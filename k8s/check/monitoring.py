"""Monitors, rules and dashboards: what is scraped is there, rules are rules, and speak of metrics that exist.

Takes a bundle; yields what is wrong. `promtool` looks at the rules, too, where there is one.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import yaml

from common.http import PROBES
from common.units import Duration
from k8s.check import metrics
from k8s.check.bundle import Bundle, Found, Json, Pod, fits, name, namespace
from k8s.check.pods import Said, twice
from k8s.check.references import DASHBOARD

METRICS = PROBES[2]
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_DEFAULT_PLACES = ":/usr/local/bin:/usr/sbin"


def check(bundle: Bundle) -> Found:
    """What is wrong with what Prometheus and Grafana read."""
    for item in bundle.of("PodMonitor"):
        for said in _monitor(item, _pods(bundle, item), item["spec"].get("podMetricsEndpoints", [])):
            yield (item, *said)
    for item in bundle.of("ServiceMonitor"):
        yield from ((item, *said) for said in _services(bundle, item))
    for item in bundle.of("PrometheusRule"):
        yield from ((item, *said) for said in _rules(item))
    for item in bundle.of("ConfigMap"):
        if DASHBOARD in item["metadata"].get("labels", {}):
            yield from ((item, *said) for said in _dashboards(item))


def _namespaces(item: Json) -> list[str]:
    told = item["spec"].get("namespaceSelector", {})
    return told.get("matchNames") or [namespace(item)]


def _pods(bundle: Bundle, item: Json) -> list[Pod]:
    return [pod for where in _namespaces(item) for pod in bundle.selected(item["spec"]["selector"], where)]


def _monitor(item: Json, pods: list[Pod], endpoints: list[Json]) -> Said:
    if not pods:
        yield "spec.selector", "selects no pod here"
    if not any(item["spec"]["selector"].values()):
        yield "spec.selector", "is empty, and selects every pod of the namespace"
    if not endpoints:
        yield "spec.podMetricsEndpoints", "is empty: nothing would be scraped"
    for index, endpoint in enumerate(endpoints):
        path = f"spec.podMetricsEndpoints[{index}]"
        port = endpoint.get("port", endpoint.get("portNumber"))
        for pod in pods:
            if port is None or not pod.has_port(port):
                yield path, f"{name(pod.owner)} has no port {port}"
        yield from ((path, words) for words in _endpoint(item, endpoint))


def _endpoint(item: Json, endpoint: Json) -> Iterator[str]:
    if endpoint.get("path", METRICS) != METRICS:
        yield f"{endpoint['path']} is not where metrics are: {METRICS}"
    try:
        every, patience = (Duration.parse(endpoint.get(key, "30s")) for key in ("interval", "scrapeTimeout"))
    except ValueError as fault:
        yield f"interval and scrapeTimeout: {fault}"
        return
    if "scrapeTimeout" in endpoint and patience > every:
        yield "scrapeTimeout is longer than interval"
    for change in endpoint.get("relabelings", []):
        named = [change.get("targetLabel", ""), *change.get("sourceLabels", [])]
        if change.get("action", "replace").lower() == "replace" and not all(map(_LABEL.fullmatch, named)):
            yield f"a relabeling has {', '.join(named) or 'nothing'} for labels"
    if endpoint.get("scheme", "http").lower() not in ("http", "https"):
        yield f"there is no scheme {endpoint['scheme']}"


def _services(bundle: Bundle, item: Json) -> Said:
    selector, spaces = item["spec"]["selector"], _namespaces(item)
    labelled = [(each, each["metadata"].get("labels", {})) for each in bundle.of("Service")]
    found = [each for each, labels in labelled if namespace(each) in spaces and fits(selector, labels)]
    if not found:
        yield "spec.selector", "selects no Service here"
    for index, endpoint in enumerate(item["spec"].get("endpoints", [])):
        for service in found:
            if endpoint.get("port") not in [port.get("name") for port in service["spec"].get("ports", [])]:
                yield (
                    f"spec.endpoints[{index}]",
                    f"Service {name(service)} has no port {endpoint.get('port')}",
                )
        yield from ((f"spec.endpoints[{index}]", words) for words in _endpoint(item, endpoint))


def _rules(item: Json) -> Said:
    groups = item["spec"].get("groups", [])
    if not any(group.get("rules") for group in groups):
        yield "spec.groups", "has no rule"
    for each in twice(group["name"] for group in groups):
        yield "spec.groups", f"two groups are called {each}"
    for group in groups:
        for rule in group.get("rules", []):
            called = rule.get("alert") or rule.get("record") or "?"
            path = f"spec.groups[{group['name']}].rules[{called}]"
            yield from ((path, words) for words in metrics.faults(str(rule["expr"])))
            yield from ((path, words) for words in _alert(rule))
    yield from (("spec.groups", words) for words in _promtool(json.dumps({"groups": groups})))


def _alert(rule: Json) -> Iterator[str]:
    if ("alert" in rule) == ("record" in rule):
        yield "is both an alert and a record, or neither"
    if "alert" in rule and rule.get("labels", {}).get("severity") not in ("critical", "warning", "info"):
        yield "has no severity: critical, warning or info"
    if "alert" in rule and not rule.get("annotations", {}).get("summary"):
        yield "has no summary"


@lru_cache(maxsize=64)
def _promtool(rules: str) -> tuple[str, ...]:
    """What promtool says; nothing where there is none."""
    program = shutil.which("promtool") or shutil.which("promtool", path=_DEFAULT_PLACES)
    if program is None:
        return ()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "rules.yaml"
        file.write_text(yaml.safe_dump(json.loads(rules)), "utf-8")
        done = subprocess.run(
            [program, "check", "rules", str(file)], capture_output=True, text=True, check=False
        )
    if done.returncode == 0:
        return ()
    lines = [line.strip().replace(f"{file}: ", "") for line in done.stderr.splitlines() if line.strip()]
    return tuple(f"promtool: {line}" for line in lines if not line.startswith("FAILED"))


def _dashboards(item: Json) -> Said:
    if item["metadata"]["labels"][DASHBOARD] != "1":
        yield f"metadata.labels.{DASHBOARD}", "has to be 1, or no sidecar takes it"
    for key, text in item.get("data", {}).items():
        try:
            told = json.loads(text)
        except ValueError as fault:
            yield f"data.{key}", f"is no JSON: {fault}"
            continue
        if not (isinstance(told, dict) and told.get("title") and told.get("uid") and told.get("panels")):
            yield f"data.{key}", "is no dashboard: title, uid and panels"

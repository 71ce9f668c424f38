"""How many pods: scalers have a target of their own, budgets let somebody go, and triggers say what KEDA
reads.

Takes a bundle; yields targets that are not there, two scalers on one target, replicas that each `apply` would
set back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from k8s.check import metrics, provided
from k8s.check.bundle import Bundle, Found, Json, Pod, name, namespace
from k8s.check.pods import Said, twice
from k8s.check.values import quantity, share

_GROUPS = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "ReplicaSet": "apps/v1"}
# Metadata of KEDA's triggers, as its scalers read them: required, optional, numbers.
_TRIGGERS: dict[str, tuple[set[str], set[str], set[str]]] = {
    "prometheus": (
        {"serverAddress", "query", "threshold"},
        {
            "queryParameters",
            "activationThreshold",
            "namespace",
            "customHeaders",
            "ignoreNullValues",
            "unsafeSsl",
        }
        | {"awsRegion", "timeout", "identityOwner", "authModes"},
        {"threshold", "activationThreshold", "timeout"},
    ),
    "cpu": ({"value"}, {"containerName"}, {"value"}),
    "memory": ({"value"}, {"containerName"}, {"value"}),
    "cron": ({"timezone", "start", "end", "desiredReplicas"}, set(), {"desiredReplicas"}),
}
_BLIND = {
    "redis-streams": "the lag is null in normal life, and it sees no retries",
    "redis": "it sees no retries",
    "redis-cluster-streams": "the lag is null in normal life, and it sees no retries",
}


def check(bundle: Bundle) -> Found:
    """What is wrong with scalers, triggers and budgets."""
    scalers = list(bundle.of("HorizontalPodAutoscaler", "ScaledObject"))
    for item in scalers:
        pod = _target(bundle, item)
        if pod is None:
            yield item, "spec.scaleTargetRef", f"there is no {_said(item)}"
            continue
        if "replicas" in pod.owner["spec"]:
            yield pod.owner, "spec.replicas", f"{name(item)} scales it, and each apply would set it back"
        rules = (
            _resources(item, pod) if item["kind"] == "HorizontalPodAutoscaler" else _scaled(bundle, item, pod)
        )
        yield from ((item, *said) for said in rules)
    for target in twice((namespace(item), _said(item)) for item in scalers):
        for item in scalers:
            if (namespace(item), _said(item)) == target:
                yield item, "spec.scaleTargetRef", f"two scalers are on {target[1]}"
    for item in bundle.of("PodDisruptionBudget"):
        yield from ((item, *said) for said in _budget(bundle, item))


def least(bundle: Bundle, pod: Pod) -> int:
    """How many pods there are at least."""
    for item in bundle.of("HorizontalPodAutoscaler", "ScaledObject"):
        target = _target(bundle, item)
        if target is not None and target.owner is pod.owner:
            told: int = item["spec"].get("minReplicas", item["spec"].get("minReplicaCount", 0))
            return told
    fixed: int = pod.owner["spec"].get("replicas", 1)
    return fixed


def _said(item: Json) -> str:
    target = item["spec"]["scaleTargetRef"]
    kind = target.get("kind", "Deployment")
    version = target.get("apiVersion", _GROUPS.get(kind, "apps/v1") if item["kind"] == "ScaledObject" else "")
    return f"{kind} {target['name']} of {version or 'no apiVersion'}"


def _target(bundle: Bundle, item: Json) -> Pod | None:
    for pod in bundle.pods():
        mine = f"{pod.owner['kind']} {name(pod.owner)} of {pod.owner['apiVersion']}"
        if pod.namespace == namespace(item) and mine == _said(item):
            return pod
    return None


def _resources(item: Json, pod: Pod) -> Said:
    """Utilization is of what containers request."""
    for index, metric in enumerate(item["spec"].get("metrics", [])):
        told = metric.get("resource") or metric.get("containerResource")
        if told is None or told["target"]["type"] != "Utilization":
            continue
        wanted = told.get("container")
        containers = [each for _, each in pod.containers("containers") if wanted in (None, each["name"])]
        if not containers:
            yield f"spec.metrics[{index}]", f"there is no container {wanted}"
        for container in containers:
            if told["name"] not in container.get("resources", {}).get("requests", {}):
                yield f"spec.metrics[{index}]", f"container {container['name']} requests no {told['name']}"
            elif not _reachable(
                container["resources"], told["name"], told["target"].get("averageUtilization", 0)
            ):
                yield (
                    f"spec.metrics[{index}]",
                    f"container {container['name']} is stopped at its limit before that",
                )


def _reachable(resources: Json, name: str, percent: int) -> bool:
    """Whether a container can use so much of its request."""
    least, most = (quantity(resources.get(part, {}).get(name, "?")) for part in ("requests", "limits"))
    return least is None or most is None or least * percent / 100 <= most


def _scaled(bundle: Bundle, item: Json, pod: Pod) -> Said:
    spec = item["spec"]
    least, most = spec.get("minReplicaCount", 0), spec.get("maxReplicaCount", 100)
    if least > most:
        yield "spec.minReplicaCount", f"is {least}, above maxReplicaCount, {most}"
    if "idleReplicaCount" in spec and spec["idleReplicaCount"] != 0:
        yield "spec.idleReplicaCount", "can be 0 alone"
    if "idleReplicaCount" in spec and spec["idleReplicaCount"] >= least:
        yield "spec.idleReplicaCount", "is not below minReplicaCount"
    source = spec["scaleTargetRef"].get("envSourceContainerName")
    if source and source not in [container["name"] for _, container in pod.containers()]:
        yield "spec.scaleTargetRef.envSourceContainerName", f"there is no container {source}"
    for each in twice(trigger["name"] for trigger in spec["triggers"] if "name" in trigger):
        yield "spec.triggers", f"two are called {each}"
    for index, trigger in enumerate(spec["triggers"]):
        for words in (*_trigger(trigger), *_authentication(bundle, item, trigger), *_of_ours(item, trigger)):
            yield f"spec.triggers[{trigger.get('name', index)}]", words
        if "fallback" in spec and trigger.get("metricType", "AverageValue") != "AverageValue":
            yield "spec.fallback", "is for metrics of type AverageValue"
    if "fallback" in spec and not spec["fallback"]["replicas"] <= most:
        yield "spec.fallback.replicas", "is above maxReplicaCount"


def _trigger(trigger: Json) -> Iterator[str]:
    kind, told = trigger["type"], trigger["metadata"]
    if kind in _BLIND:
        yield f"{kind} is no measure of our backlog: {_BLIND[kind]}"
        return
    if kind not in _TRIGGERS:
        yield f"{kind!r} is no trigger that is known here: {', '.join(_TRIGGERS)}"
        return
    required, optional, numbers = _TRIGGERS[kind]
    yield from (f"metadata.{key} is missing" for key in sorted(required - told.keys()))
    yield from (
        f"metadata.{key} is nothing that KEDA reads" for key in sorted(told.keys() - required - optional)
    )
    yield from (
        f"metadata.{key} is no number" for key in sorted(numbers & told.keys()) if not _number(told[key])
    )
    for key in ("ignoreNullValues", "unsafeSsl"):
        if told.get(key, "true") not in ("true", "false"):
            yield f"metadata.{key} is neither true nor false"
    if kind in ("cpu", "memory") and trigger.get("metricType", "Utilization") not in (
        "Utilization",
        "AverageValue",
    ):
        yield f"metricType {trigger['metricType']} does not go with {kind}"
    if kind not in ("cpu", "memory") and trigger.get("metricType") == "Utilization":
        yield f"metricType Utilization does not go with {kind}"


def _number(text: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?", text) is not None and float(text) > 0


def _authentication(bundle: Bundle, item: Json, trigger: Json) -> Iterator[str]:
    told = trigger.get("authenticationRef")
    if told is None:
        return
    kind = told.get("kind", "TriggerAuthentication")
    if bundle.find(kind, told["name"], namespace(item)) is None:
        yield f"there is no {kind} {told['name']}"


def _of_ours(item: Json, trigger: Json) -> Iterator[str]:
    """A query: it parses, gives one figure, of metrics that exist, of this namespace."""
    query, address = trigger["metadata"].get("query"), trigger["metadata"].get("serverAddress")
    if trigger["type"] != "prometheus" or query is None or address is None:
        return
    try:
        parts = urlsplit(address)
        where = f"{parts.hostname}:{parts.port}"
    except ValueError:
        where = "?"
    if parts.scheme not in ("http", "https") or where not in provided.services():
        yield f"there is no {address}: a site brings {', '.join(provided.services())}"
    yield from metrics.faults(query)
    yield from metrics.not_one(query)
    yield from metrics.elsewhere(query, namespace(item))
    if metrics.named(query) and item["spec"].get("minReplicaCount", 0) < 1:
        yield "our own figure comes from the pods it scales: with minReplicaCount 0 nobody would export it"
    if trigger["metadata"].get("ignoreNullValues", "true") != "false":
        yield "ignoreNullValues has to be false: a figure that is missing is no backlog of 0"


def _budget(bundle: Bundle, item: Json) -> Said:
    spec = item["spec"]
    for pod in bundle.selected(spec.get("selector", {}), namespace(item)):
        pods = least(bundle, pod)
        stays = share(spec["minAvailable"], pods, up=True) if "minAvailable" in spec else 0
        goes = share(spec["maxUnavailable"], pods, up=True) if "maxUnavailable" in spec else pods
        if not (stays < pods and goes > 0):
            yield "spec", f"lets none of {pods} pods of {name(pod.owner)} go: no node could be drained"
        if goes - stays >= pods > 1:
            yield "spec", f"lets all {pods} pods of {name(pod.owner)} go at once"

"""Objects that are no pods: what an API server refuses in them and no schema tells.

Takes a bundle; yields selectors that don't fit, budgets and scalers that contradict themselves, services
whose ports clash, policies that say less than they look like.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Callable, Iterator
from typing import Any

from k8s.check.bundle import CLUSTER_WIDE, Bundle, Found, Json, Pod, fits, name, namespace
from k8s.check.pods import Said, twice
from k8s.check.values import share

_MOST = 1024 * 1024  # bytes of a ConfigMap or Secret


def check(bundle: Bundle) -> Found:
    """What is wrong with each object by itself, and with those that are there twice."""
    for kind, where, called in twice((each["kind"], namespace(each), name(each)) for each in bundle.objects):
        item = bundle.find(kind, called, where)
        if item is not None:
            yield item, "metadata.name", "is there twice"
    for item in bundle.objects:
        if item["kind"] in CLUSTER_WIDE and "namespace" in item["metadata"]:
            yield item, "metadata.namespace", f"a {item['kind']} lies in none"
        for rule in (_expressions, *_RULES.get(item["kind"], ())):
            yield from ((item, *said) for said in rule(item))
    yield from _owners(bundle)


def _owners(bundle: Bundle) -> Found:
    """Each pod belongs to one workload."""
    workloads = [pod for pod in bundle.pods() if "selector" in pod.owner["spec"]]
    for pod in workloads:
        selector = pod.owner["spec"]["selector"]
        if not fits(selector, pod.labels):
            yield pod.owner, "spec.selector", "does not fit the labels of its own template"
        if not (selector.get("matchLabels") or selector.get("matchExpressions")):
            yield pod.owner, "spec.selector", "is empty"
        for other in workloads:
            if other is not pod and other.namespace == pod.namespace and fits(selector, other.labels):
                yield pod.owner, "spec.selector", f"selects the pods of {name(other.owner)}, too"


def _expressions(item: Json) -> Said:
    """matchExpressions, wherever they are."""
    for path, expression in _all_expressions(item.get("spec", {}), "spec"):
        operator, values = expression.get("operator"), expression.get("values", [])
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            yield path, f"{operator!r} is no operator: In, NotIn, Exists, DoesNotExist"
        elif (operator in ("In", "NotIn")) != bool(values):
            yield path, f"{operator} with {'no' if not values else 'such'} values says nothing"


def _all_expressions(node: Any, path: str) -> Iterator[tuple[str, Json]]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "matchExpressions" and "nodeSelectorTerms" not in path:
                yield from ((f"{path}.{key}", each) for each in value)
            else:
                yield from _all_expressions(value, f"{path}.{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _all_expressions(value, f"{path}[{index}]")


def _deployment(item: Json) -> Said:
    spec = item["spec"]
    strategy = spec.get("strategy", {})
    rolling = strategy.get("rollingUpdate")
    if strategy.get("type") == "Recreate" and rolling is not None:
        yield "spec.strategy", "Recreate goes without rollingUpdate"
    if rolling is not None:
        if not share(rolling.get("maxUnavailable", 1), 100, up=False) and not share(
            rolling.get("maxSurge", 1), 100, up=True
        ):
            yield (
                "spec.strategy.rollingUpdate",
                "neither maxUnavailable nor maxSurge: nothing could be replaced",
            )
        if share(rolling.get("maxUnavailable", 0), 100, up=False) > 100:
            yield "spec.strategy.rollingUpdate.maxUnavailable", "is above 100%"
    if spec.get("progressDeadlineSeconds", 600) <= spec.get("minReadySeconds", 0):
        yield "spec.progressDeadlineSeconds", "is not above minReadySeconds"


def _stateful_set(item: Json) -> Said:
    claims = [name(claim) for claim in item["spec"].get("volumeClaimTemplates", [])]
    pod = Pod(item, {}, item["spec"]["template"]["spec"], "spec.template.spec")
    volumes = [volume["name"] for volume in pod.spec.get("volumes", [])]
    for each in twice([*claims, *volumes]):
        yield "spec.volumeClaimTemplates", f"{each} is the name of two"
    for claim in item["spec"].get("volumeClaimTemplates", []):
        yield from (
            (f"spec.volumeClaimTemplates[{name(claim)}]", words) for words in _claim(claim.get("spec", {}))
        )


def _persistent(item: Json) -> Said:
    yield from (("spec", words) for words in _claim(item["spec"]))


def _claim(spec: Json) -> Iterator[str]:
    modes = spec.get("accessModes", [])
    if not modes:
        yield "has no accessModes"
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        yield "ReadWriteOncePod goes with no other mode"
    if "storage" not in spec.get("resources", {}).get("requests", {}):
        yield "asks for no storage"


def _service(item: Json) -> Said:
    spec = item["spec"]
    ports, kind = spec.get("ports", []), spec.get("type", "ClusterIP")
    if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
        yield "spec.ports", "has no port"
    if len(ports) > 1 and not all(port.get("name") for port in ports):
        yield "spec.ports", "several ports need names"
    for each in twice(port["name"] for port in ports if port.get("name")):
        yield "spec.ports", f"two ports are called {each}"
    for number, protocol in twice((port["port"], port.get("protocol", "TCP")) for port in ports):
        yield "spec.ports", f"two ports are {number}/{protocol}"
    for port in ports:
        if "nodePort" in port and kind not in ("NodePort", "LoadBalancer"):
            yield "spec.ports", f"a nodePort goes with NodePort and LoadBalancer, not with {kind}"
    if kind == "ExternalName" and not spec.get("externalName"):
        yield "spec.externalName", "is missing"
    if kind != "ClusterIP" and spec.get("clusterIP") == "None":
        yield "spec.clusterIP", f"None does not go with {kind}"


def _budget(item: Json) -> Said:
    told = [key for key in ("minAvailable", "maxUnavailable") if key in item["spec"]]
    if len(told) != 1:
        yield "spec", f"has {' and '.join(told) or 'neither minAvailable nor maxUnavailable'}, and needs one"
    for key in told:
        if share(item["spec"][key], 100, up=True) > 100 and isinstance(item["spec"][key], str):
            yield f"spec.{key}", "is above 100%"


def _scaler(item: Json) -> Said:
    spec = item["spec"]
    least, most = spec.get("minReplicas", 1), spec["maxReplicas"]
    if least > most:
        yield "spec.minReplicas", f"is {least}, above maxReplicas, {most}"
    if item["apiVersion"] == "autoscaling/v1":
        return
    if not spec.get("metrics"):
        yield "spec.metrics", "is empty: nothing says when to scale"
    sources = {"Resource": "resource", "ContainerResource": "containerResource", "Pods": "pods"}
    sources |= {"Object": "object", "External": "external"}
    for index, metric in enumerate(spec.get("metrics", [])):
        path, source = f"spec.metrics[{index}]", sources.get(metric["type"], "?")
        if [key for key in metric if key != "type"] != [source]:
            yield path, f"of type {metric['type']} needs {source}, and nothing else"
            continue
        target = metric[source]["target"]
        value = {"Utilization": "averageUtilization", "Value": "value", "AverageValue": "averageValue"}
        if [key for key in target if key != "type"] != [value.get(target["type"], "?")]:
            yield (
                f"{path}.{source}.target",
                f"of type {target['type']} needs {value.get(target['type'])} alone",
            )


def _network(item: Json) -> Said:
    spec = item["spec"]
    types = spec.get("policyTypes")
    for direction, rules, peers in (("Ingress", "ingress", "from"), ("Egress", "egress", "to")):
        if rules in spec and types is not None and direction not in types:
            yield (
                "spec.policyTypes",
                f"lacks {direction}, so that what stands under {rules} counts for nothing",
            )
        for index, rule in enumerate(spec.get(rules, [])):
            for peer in rule.get(peers, []):
                yield from ((f"spec.{rules}[{index}].{peers}", words) for words in _peer(peer))
            for port in rule.get("ports", []):
                path = f"spec.{rules}[{index}].ports"
                if "endPort" in port and not (
                    isinstance(port.get("port"), int) and port["endPort"] >= port["port"]
                ):
                    yield path, "endPort needs a port that is a number and not above it"


def _peer(peer: Json) -> Iterator[str]:
    if not peer:
        yield "has an empty item, which is nobody"
    if "ipBlock" not in peer:
        return
    if len(peer) > 1:
        yield "has ipBlock and a selector in one item"
    try:
        block = ipaddress.ip_network(peer["ipBlock"]["cidr"])
        excepted = [ipaddress.ip_network(each) for each in peer["ipBlock"].get("except", [])]
    except ValueError as fault:
        yield f"has no CIDR: {fault}"
        return
    for each in excepted:
        if each.version != block.version or not each.subnet_of(block) or each == block:  # type: ignore[arg-type]  # same version
            yield f"except {each} is no part of {block}"


def _data(item: Json) -> Said:
    parts = [item.get(part, {}) for part in ("data", "binaryData", "stringData")]
    for key in twice(key for part in parts for key in part):
        yield "data", f"{key} is there twice"
    size = sum(len(key) + len(str(value).encode()) for part in parts for key, value in part.items())
    if size > _MOST:
        yield "data", f"has {size} bytes; etcd takes {_MOST}"
    for key, value in (
        item.get("data", {}) if item["kind"] == "Secret" else item.get("binaryData", {})
    ).items():
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            yield f"data.{key}", "is no base64"


def _ingress(item: Json) -> Said:
    for index, rule in enumerate(item["spec"].get("rules", [])):
        for path in rule.get("http", {}).get("paths", []):
            if path.get("pathType") in ("Exact", "Prefix") and not path.get("path", "").startswith("/"):
                yield f"spec.rules[{index}]", "a path begins with '/'"


_RULES: dict[str, tuple[Callable[[Json], Said], ...]] = {
    "Deployment": (_deployment,),
    "StatefulSet": (_stateful_set,),
    "PersistentVolumeClaim": (_persistent,),
    "Service": (_service,),
    "PodDisruptionBudget": (_budget,),
    "HorizontalPodAutoscaler": (_scaler,),
    "NetworkPolicy": (_network,),
    "ConfigMap": (_data,),
    "Secret": (_data,),
    "Ingress": (_ingress,),
}

"""Pods: what an API server refuses in a pod's spec and no schema tells.

Takes a bundle; yields ports that clash, probes of ports that are not there, mounts without a volume,
variables with two sources, requests above their limits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeAlias

from k8s.check.bundle import Bundle, Found, Json, Pod, fits
from k8s.check.values import quantity

Said: TypeAlias = Iterator[tuple[str, str]]  # place and words

PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
_HANDLERS = ("httpGet", "tcpSocket", "exec", "grpc", "sleep")
_FIELDS = re.compile(
    r"metadata\.(name|namespace|uid)|metadata\.(labels|annotations)\['[^']+'\]"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIP|hostIPs|podIP|podIPs)"
)
_RESOURCES = re.compile(r"(limits|requests)\.(cpu|memory|ephemeral-storage|hugepages-.+)")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_TOPOLOGY = ("kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_GRACE = 30  # seconds, when a pod does not say


def check(bundle: Bundle) -> Found:
    """What is wrong with each workload's pods."""
    for pod in bundle.pods():
        for path, words in chain.from_iterable(rule(pod) for rule in _RULES):
            yield pod.owner, path, words


def twice(values: Iterable[Any]) -> list[Any]:
    """Those that come more than once."""
    return [value for value, times in Counter(values).items() if times > 1]


def _names(pod: Pod) -> Said:
    if not pod.spec.get("containers"):
        yield f"{pod.path}.containers", "has no container"
    for name in twice(container["name"] for _, container in pod.containers()):
        yield pod.path, f"two containers are called {name}"
    for name in twice(volume["name"] for volume in pod.spec.get("volumes", [])):
        yield f"{pod.path}.volumes", f"two volumes are called {name}"
    for path, container in pod.containers():
        if not container.get("image", "").strip():
            yield f"{path}.image", "is missing"
        for name in twice(each["name"] for each in container.get("env", [])):
            yield f"{path}.env[{name}]", "is there twice, and the last one counts"


def _ports(pod: Pod) -> Said:
    for name in twice(port["name"] for port in pod.ports() if port.get("name")):
        yield pod.path, f"two ports are called {name}"
    for number, protocol in twice((p["containerPort"], p.get("protocol", "TCP")) for p in pod.ports()):
        yield pod.path, f"two ports are {number}/{protocol}"
    for path, container in pod.containers():
        for port in container.get("ports", []):
            if (
                pod.spec.get("hostNetwork")
                and port.get("hostPort", port["containerPort"]) != port["containerPort"]
            ):
                yield f"{path}.ports", "hostPort differs from containerPort on the node's own network"


def _probes(pod: Pod) -> Said:
    for path, container in pod.containers("containers", "initContainers"):
        for kind in PROBES:
            if kind in container:
                said = _probe(kind, container[kind], container.get("ports", []))
                yield from ((f"{path}.{kind}", words) for words in said)
        for hook, handler in container.get("lifecycle", {}).items():
            if hook in ("preStop", "postStart"):
                yield from ((f"{path}.lifecycle.{hook}", words) for words in _hook(handler, container, pod))
    for path, container in pod.containers("initContainers"):
        if container.get("restartPolicy") != "Always" and any(
            kind in container for kind in (*PROBES, "lifecycle")
        ):
            yield path, "a container that runs before the others has neither probes nor hooks"


def _probe(kind: str, probe: Json, ports: list[Json]) -> Iterator[str]:
    yield from _handler(probe, ports)
    if kind != "readinessProbe" and probe.get("successThreshold", 1) != 1:
        yield "successThreshold has to be 1 here"
    if kind == "readinessProbe" and "terminationGracePeriodSeconds" in probe:
        yield "terminationGracePeriodSeconds has no meaning here, and is refused"
    if probe.get("timeoutSeconds", 1) > probe.get("periodSeconds", 10):
        yield "waits longer than its period"


def _hook(handler: Json, container: Json, pod: Pod) -> Iterator[str]:
    yield from _handler(handler, container.get("ports", []))
    grace = pod.spec.get("terminationGracePeriodSeconds", _GRACE)
    seconds = handler.get("sleep", {}).get("seconds")
    if seconds is not None and not 0 < seconds < grace:
        yield f"sleeps for {seconds} s, and terminationGracePeriodSeconds is {grace}"


def _handler(told: Json, ports: list[Json]) -> Iterator[str]:
    handlers = [name for name in _HANDLERS if name in told]
    if len(handlers) != 1:
        yield f"has {' and '.join(handlers) or 'no handler'}, and needs one of {', '.join(_HANDLERS)}"
    for name in handlers:
        handler = told[name]
        if name == "exec" and not handler.get("command"):
            yield "exec has no command"
        port = handler.get("port")
        key = "name" if isinstance(port, str) else "containerPort"
        if port is not None and port not in [each.get(key) for each in ports]:
            yield f"{name} asks port {port}, and the container has no such port"


def _environment(pod: Pod) -> Said:
    for path, container in pod.containers():
        for variable in container.get("env", []):
            yield from ((f"{path}.env[{variable['name']}]", words) for words in _variable(variable))
        known = {each["name"] for each in container.get("env", [])}
        texts = [*container.get("args", []), *container.get("command", [])]
        texts += [each.get("value", "") for each in container.get("env", [])]
        for name in {name for text in texts for name in re.findall(r"(?<!\$)\$\(([-._a-zA-Z0-9]+)\)", text)}:
            if name not in known and not container.get("envFrom"):
                yield path, f"$({name}) stays as it is: there is no variable {name}"


def _variable(variable: Json) -> Iterator[str]:
    told = variable.get("valueFrom")
    if told is None:
        if not variable.get("value"):
            yield "has no value"
        return
    if variable.get("value"):
        yield "has both value and valueFrom"
    sources = [source for source in _SOURCES if source in told]
    if len(sources) != 1:
        yield f"valueFrom has {' and '.join(sources) or 'no source'}, and needs one"
    if "fieldRef" in told and not _FIELDS.fullmatch(told["fieldRef"]["fieldPath"]):
        yield f"there is no field {told['fieldRef']['fieldPath']} to refer to"
    if "resourceFieldRef" in told and not _RESOURCES.fullmatch(told["resourceFieldRef"]["resource"]):
        yield f"there is no resource {told['resourceFieldRef']['resource']} to refer to"


def _volumes(pod: Pod) -> Said:
    mounted = set()
    for path, container in pod.containers():
        mounts = container.get("volumeMounts", [])
        for mount in mounts:
            mounted.add(mount["name"])
            if pod.volume(mount["name"]) is None:
                yield f"{path}.volumeMounts[{mount['name']}]", f"there is no volume {mount['name']}"
        for place in twice(mount["mountPath"].rstrip("/") for mount in mounts):
            yield f"{path}.volumeMounts", f"two volumes are mounted at {place}"
    for volume in pod.spec.get("volumes", []):
        path = f"{pod.path}.volumes[{volume['name']}]"
        sources = [key for key in volume if key != "name"]
        if len(sources) != 1:
            yield path, f"has {' and '.join(sources) or 'no source'}, and needs one"
        if volume["name"] not in mounted:
            yield path, "is mounted by no container"
        for source in sources:
            for place in twice(item["path"] for item in _items(volume[source])):
                yield path, f"two items are put at {place}"


def _claims(pod: Pod) -> Said:
    mounted = {
        mount["name"] for _, container in pod.containers() for mount in container.get("volumeMounts", [])
    }
    for claim in pod.owner["spec"].get("volumeClaimTemplates", []):
        if claim["metadata"]["name"] not in mounted:
            yield f"spec.volumeClaimTemplates[{claim['metadata']['name']}]", "is mounted by no container"


def _items(source: Any) -> list[Json]:
    told = source.get("items", []) if isinstance(source, dict) else []
    return [item for item in told if "path" in item]


def _resources(pod: Pod) -> Said:
    for path, container in pod.containers():
        limits = container.get("resources", {}).get("limits", {})
        for resource, told in container.get("resources", {}).get("requests", {}).items():
            least, most = quantity(told), quantity(limits.get(resource, told))
            if least is not None and most is not None and least > most:
                yield (
                    f"{path}.resources",
                    f"requests {told} of {resource}, above the limit of {limits[resource]}",
                )


def _life(pod: Pod) -> Said:
    kind, policy = pod.owner["kind"], pod.spec.get("restartPolicy", "Always")
    lasting = kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
    if lasting and policy != "Always":
        yield f"{pod.path}.restartPolicy", f"is {policy}, and a {kind} takes Always alone"
    if kind in ("Job", "CronJob") and policy == "Always":
        yield f"{pod.path}.restartPolicy", f"is Always, and a {kind} takes OnFailure or Never"
    if lasting and "activeDeadlineSeconds" in pod.spec:
        yield f"{pod.path}.activeDeadlineSeconds", f"a {kind} takes none"
    if pod.spec.get("dnsPolicy") == "None" and not pod.spec.get("dnsConfig", {}).get("nameservers"):
        yield f"{pod.path}.dnsPolicy", "is None, and dnsConfig has no nameservers"


def _spread(pod: Pod) -> Said:
    told = pod.spec.get("topologySpreadConstraints", [])
    for index, each in enumerate(told):
        path = f"{pod.path}.topologySpreadConstraints[{index}]"
        if not fits(each.get("labelSelector", {}), pod.labels) or not each.get("labelSelector"):
            yield path, "its selector does not fit the pods it spreads"
        if (
            re.search(r"(^|\.|/)(kubernetes|k8s)\.io/", each["topologyKey"])
            and each["topologyKey"] not in _TOPOLOGY
        ):
            yield path, f"no node has a label {each['topologyKey']}"
        if "minDomains" in each and each["whenUnsatisfiable"] != "DoNotSchedule":
            yield path, "minDomains goes with DoNotSchedule alone"
    for key, when in twice((each["topologyKey"], each["whenUnsatisfiable"]) for each in told):
        yield f"{pod.path}.topologySpreadConstraints", f"two of them are about {key}, {when}"


_RULES: tuple[Callable[[Pod], Said], ...] = (
    _names,
    _ports,
    _probes,
    _environment,
    _volumes,
    _claims,
    _resources,
    _life,
    _spread,
)

"""References: whatever names another object names one that is there, with the key or port that is wanted.

Takes a bundle; yields what leads nowhere, and what nothing leads to. What a site brings is in
`k8s/provided.yaml`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from k8s.check import provided
from k8s.check.bundle import CLUSTER_WIDE, Bundle, Found, Json, Pod, fits, name, namespace, walk
from k8s.check.pods import Said

DASHBOARD = "grafana_dashboard"
_PRIORITIES = ("system-cluster-critical", "system-node-critical")


def check(bundle: Bundle) -> Found:
    """Everything that leads nowhere."""
    for item in bundle.objects:
        if item["kind"] not in CLUSTER_WIDE and bundle.find("Namespace", namespace(item), "") is None:
            yield item, "metadata.namespace", f"there is no namespace {namespace(item)} here"
    for pod in bundle.pods():
        for said in (*_variables(bundle, pod), *_volumes(bundle, pod), *_identity(bundle, pod)):
            yield (pod.owner, *said)
    for kind, rule in _RULES.items():
        for item in bundle.of(kind):
            yield from ((item, *said) for said in rule(bundle, item))
    yield from _unused(bundle)


def keys(bundle: Bundle, kind: str, wanted: str, where: str) -> set[str] | None:
    """The keys of a ConfigMap or Secret, here or brought; None when there is none."""
    item = bundle.find(kind, wanted, where)
    if item is not None:
        return {key for part in ("data", "binaryData", "stringData") for key in item.get(part, {})}
    brought = provided.secret(wanted) if kind == "Secret" else None
    return None if brought is None else set(brought)


def sources(volume: Json) -> Iterator[tuple[str, Json]]:
    """Kind and source of each ConfigMap and Secret in a volume; the name is under `name`."""
    if "configMap" in volume:
        yield "ConfigMap", volume["configMap"]
    if "secret" in volume:
        yield "Secret", {**volume["secret"], "name": volume["secret"].get("secretName", "")}
    for each in volume.get("projected", {}).get("sources", []):
        if "configMap" in each:
            yield "ConfigMap", each["configMap"]
        if "secret" in each:
            yield "Secret", each["secret"]


def _missing(bundle: Bundle, pod: Pod, kind: str, source: Json, wanted: list[str]) -> Iterator[str]:
    if source.get("optional"):
        return
    called = source.get("name", "")
    found = keys(bundle, kind, called, pod.namespace)
    if found is None:
        yield f"there is no {kind} {called}"
    else:
        yield from (f"{kind} {called} has no key {key}" for key in wanted if key not in found)


def _variables(bundle: Bundle, pod: Pod) -> Said:
    for path, container in pod.containers():
        for variable in container.get("env", []):
            told = variable.get("valueFrom", {})
            for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
                for words in (
                    _missing(bundle, pod, kind, told[key], [told[key]["key"]]) if key in told else ()
                ):
                    yield f"{path}.env[{variable['name']}]", words
            label = told.get("fieldRef", {}).get("fieldPath", "").partition("metadata.labels['")[2]
            if label and label.removesuffix("']") not in pod.labels:
                yield (
                    f"{path}.env[{variable['name']}]",
                    f"its pods have no label {label.removesuffix(chr(39) + ']')}",
                )
        for index, each in enumerate(container.get("envFrom", [])):
            for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
                for words in _missing(bundle, pod, kind, each[key], []) if key in each else ():
                    yield f"{path}.envFrom[{index}]", words


def _volumes(bundle: Bundle, pod: Pod) -> Said:
    for volume in pod.spec.get("volumes", []):
        path = f"{pod.path}.volumes[{volume['name']}]"
        for kind, source in sources(volume):
            wanted = [item["key"] for item in source.get("items", [])]
            yield from ((path, words) for words in _missing(bundle, pod, kind, source, wanted))
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim is not None and bundle.find("PersistentVolumeClaim", claim, pod.namespace) is None:
            yield path, f"there is no PersistentVolumeClaim {claim}"
    for path, container in pod.containers():
        for mount in container.get("volumeMounts", []):
            volume = pod.volume(mount["name"])
            if (
                volume is not None
                and "subPath" in mount
                and not _has_path(bundle, pod, volume, mount["subPath"])
            ):
                yield (
                    f"{path}.volumeMounts[{mount['name']}]",
                    f"there is no {mount['subPath']} in that volume",
                )


def _has_path(bundle: Bundle, pod: Pod, volume: Json, path: str) -> bool:
    told = list(sources(volume))
    if not told:
        return True  # a directory of any other kind
    there: set[str] = set()
    for kind, source in told:
        items = source.get("items")
        found = keys(bundle, kind, source.get("name", ""), pod.namespace) or set()
        there |= {item["path"] for item in items} if items else found
    return path.partition("/")[0] in {each.partition("/")[0] for each in there}


def _identity(bundle: Bundle, pod: Pod) -> Said:
    account = pod.spec.get("serviceAccountName", "default")
    if account != "default" and bundle.find("ServiceAccount", account, pod.namespace) is None:
        yield f"{pod.path}.serviceAccountName", f"there is no ServiceAccount {account}"
    for each in pod.spec.get("imagePullSecrets", []):
        if keys(bundle, "Secret", each.get("name", ""), pod.namespace) is None:
            yield f"{pod.path}.imagePullSecrets", f"there is no Secret {each.get('name')}"
    priority = pod.spec.get("priorityClassName")
    if priority and priority not in _PRIORITIES and bundle.find("PriorityClass", priority, "") is None:
        yield f"{pod.path}.priorityClassName", f"there is no PriorityClass {priority}"


def _service(bundle: Bundle, item: Json) -> Said:
    selector = item["spec"].get("selector")
    if not selector:
        return
    pods = bundle.selected({"matchLabels": selector}, namespace(item))
    if not pods:
        yield "spec.selector", "selects no pod here"
    if len({name(pod.owner) for pod in pods}) > 1:
        yield "spec.selector", f"selects pods of {' and of '.join(sorted(name(pod.owner) for pod in pods))}"
    for port in item["spec"].get("ports", []):
        target, protocol = port.get("targetPort", port["port"]), port.get("protocol", "TCP")
        for pod in pods:
            if not pod.has_port(target, protocol):
                yield (
                    f"spec.ports[{port.get('name', port['port'])}]",
                    f"{name(pod.owner)} has no port {target}/{protocol}",
                )


def _stateful_set(bundle: Bundle, item: Json) -> Said:
    called = item["spec"].get("serviceName")
    service = bundle.find("Service", called, namespace(item)) if called else None
    if service is None:
        yield "spec.serviceName", f"there is no Service {called}"
        return
    if service["spec"].get("clusterIP") != "None":
        yield "spec.serviceName", f"Service {called} is not headless (clusterIP: None)"
    labels = item["spec"]["template"].get("metadata", {}).get("labels", {})
    if not fits({"matchLabels": service["spec"].get("selector", {})}, labels):
        yield "spec.serviceName", f"Service {called} does not select its pods"


def _budget(bundle: Bundle, item: Json) -> Said:
    pods = bundle.selected(item["spec"].get("selector", {}), namespace(item))
    if not pods:
        yield "spec.selector", "selects no pod here"
    if len(pods) > 1:
        yield "spec.selector", f"selects pods of {' and of '.join(sorted(name(pod.owner) for pod in pods))}"
    for other in bundle.of("PodDisruptionBudget"):
        shared = [
            pod for pod in pods if other is not item and fits(other["spec"].get("selector", {}), pod.labels)
        ]
        if shared and namespace(other) == namespace(item):
            yield "spec.selector", f"{name(other)} is about the same pods: then none can be evicted"


def _binding(bundle: Bundle, item: Json) -> Said:
    role = item["roleRef"]
    where = namespace(item) if role["kind"] == "Role" else ""
    if bundle.find(role["kind"], role["name"], where) is None:
        yield "roleRef", f"there is no {role['kind']} {role['name']}"
    for subject in item.get("subjects", []):
        if subject["kind"] == "ServiceAccount":
            place = subject.get("namespace", namespace(item))
            if bundle.find("ServiceAccount", subject["name"], place) is None:
                yield "subjects", f"there is no ServiceAccount {subject['name']} in {place}"


def _ingress(bundle: Bundle, item: Json) -> Said:
    for path, key, value in walk(item["spec"], "spec"):
        if key == "service" and isinstance(value, dict):
            service = bundle.find("Service", value["name"], namespace(item))
            port = value.get("port", {})
            if service is None:
                yield path, f"there is no Service {value['name']}"
            elif not any(
                each.get("name") == port.get("name", "?") or each["port"] == port.get("number")
                for each in service["spec"].get("ports", [])
            ):
                yield path, f"Service {value['name']} has no such port"


def _credentials(bundle: Bundle, item: Json) -> Said:
    """What KEDA signs in with."""
    for part, kind in (("secretTargetRef", "Secret"), ("configMapTargetRef", "ConfigMap")):
        for each in item["spec"].get(part, []):
            found = keys(bundle, kind, each["name"], namespace(item))
            if found is None:
                yield f"spec.{part}[{each['parameter']}]", f"there is no {kind} {each['name']}"
            elif each["key"] not in found:
                yield f"spec.{part}[{each['parameter']}]", f"{kind} {each['name']} has no key {each['key']}"


def _unused(bundle: Bundle) -> Found:
    """What was meant for somebody and reaches nobody, as after a change of a name."""
    used: set[tuple[str, str, str]] = set()
    for pod in bundle.pods():
        used.add(("ServiceAccount", pod.spec.get("serviceAccountName", "default"), pod.namespace))
        for volume in pod.spec.get("volumes", []):
            used |= {(kind, source.get("name", ""), pod.namespace) for kind, source in sources(volume)}
            claim = volume.get("persistentVolumeClaim", {}).get("claimName", "")
            used.add(("PersistentVolumeClaim", claim, pod.namespace))
        for _, container in pod.containers():
            for _, key, value in walk([container.get("env", []), container.get("envFrom", [])]):
                if key in ("configMapKeyRef", "configMapRef"):
                    used.add(("ConfigMap", value.get("name", ""), pod.namespace))
                if key in ("secretKeyRef", "secretRef"):
                    used.add(("Secret", value.get("name", ""), pod.namespace))
    for item in bundle.of("ConfigMap", "Secret", "PersistentVolumeClaim", "ServiceAccount"):
        found = (item["kind"], name(item), namespace(item)) in used
        if not found and DASHBOARD not in item["metadata"].get("labels", {}):
            yield item, "metadata.name", "no pod uses it"


_RULES: dict[str, Callable[[Bundle, Json], Said]] = {
    "Service": _service,
    "StatefulSet": _stateful_set,
    "PodDisruptionBudget": _budget,
    **dict.fromkeys(("RoleBinding", "ClusterRoleBinding"), _binding),
    "Ingress": _ingress,
    "TriggerAuthentication": _credentials,
}

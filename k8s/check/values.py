"""Values that have a form which no schema tells: names, labels, quantities, words out of a few, numbers in a
range.

Takes a bundle; yields what an API server would refuse, or would take for something that nobody meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from k8s.check.bundle import Bundle, Found, Json, name, walk

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)(?=.{1,15}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(n|u|m|k|[MGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_PERCENT = re.compile(r"\d{1,3}%")
_FACTORS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3}
_FACTORS |= {unit: 1000.0**power for power, unit in enumerate("MGTPE", 2)}
_FACTORS |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)}

ENUMS = {
    "imagePullPolicy": {"Always", "IfNotPresent", "Never"},
    "restartPolicy": {"Always", "OnFailure", "Never"},
    "protocol": {"TCP", "UDP", "SCTP"},
    "whenUnsatisfiable": {"DoNotSchedule", "ScheduleAnyway"},
    "policyTypes": {"Ingress", "Egress"},
    "accessModes": {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"},
    "dnsPolicy": {"ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"},
    "pathType": {"Exact", "Prefix", "ImplementationSpecific"},
    "scheme": {"HTTP", "HTTPS"},
    "terminationMessagePolicy": {"File", "FallbackToLogsOnError"},
    "unhealthyPodEvictionPolicy": {"IfHealthyBudget", "AlwaysAllow"},
    "fsGroupChangePolicy": {"Always", "OnRootMismatch"},
    "externalTrafficPolicy": {"Cluster", "Local"},
    "internalTrafficPolicy": {"Cluster", "Local"},
    "podManagementPolicy": {"OrderedReady", "Parallel"},
    "concurrencyPolicy": {"Allow", "Forbid", "Replace"},
    "ipFamilyPolicy": {"SingleStack", "PreferDualStack", "RequireDualStack"},
    "sessionAffinity": {"None", "ClientIP"},
    "selectPolicy": {"Max", "Min", "Disabled"},
    "volumeMode": {"Filesystem", "Block"},
    "procMount": {"Default", "Unmasked"},
    "nodeAffinityPolicy": {"Honor", "Ignore"},
    "nodeTaintsPolicy": {"Honor", "Ignore"},
    "metricType": {"AverageValue", "Value", "Utilization"},
}
# `type` means something else in each place.
TYPES = {
    "strategy": {"RollingUpdate", "Recreate"},
    "updateStrategy": {"RollingUpdate", "OnDelete"},
    "seccompProfile": {"RuntimeDefault", "Localhost", "Unconfined"},
    "appArmorProfile": {"RuntimeDefault", "Localhost", "Unconfined"},
    "metrics": {"Resource", "ContainerResource", "Pods", "Object", "External"},
    "target": {"Utilization", "Value", "AverageValue"},
    "policies": {"Pods", "Percent"},
}
_KINDS_OF_SERVICE = {"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}
_MOST = 2**31 - 1
RANGES = {
    **dict.fromkeys(("containerPort", "hostPort", "endPort", "nodePort"), (1, 65535)),
    **dict.fromkeys(("timeoutSeconds", "failureThreshold", "successThreshold"), (1, _MOST)),
    **dict.fromkeys(
        ("minReadySeconds", "initialDelaySeconds", "replicas", "revisionHistoryLimit"), (0, _MOST)
    ),
    **dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), (0, _MOST)),
    **dict.fromkeys(("maxSkew", "minDomains", "averageUtilization", "progressDeadlineSeconds"), (1, _MOST)),
    **dict.fromkeys(("minReplicas", "maxReplicas", "pollingInterval"), (1, _MOST)),
    **dict.fromkeys(("minReplicaCount", "idleReplicaCount", "cooldownPeriod"), (0, _MOST)),
    "maxReplicaCount": (1, _MOST),
    "terminationGracePeriodSeconds": (0, _MOST),
    "stabilizationWindowSeconds": (0, 3600),
    "defaultMode": (0, 0o777),
    "mode": (0, 0o777),
}
_NUMBERS_OR_SHARES = ("maxUnavailable", "minAvailable", "maxSurge")
_LABELS = ("labels", "matchLabels", "nodeSelector")
_LOOKED_AT = {
    *ENUMS,
    *RANGES,
    *_NUMBERS_OR_SHARES,
    *_LABELS,
    "limits",
    "requests",
    "type",
    "name",
    "port",
    "targetPort",
}
_LOOKED_AT |= {
    "mountPath",
    "workingDir",
    "path",
    "subPath",
    "sizeLimit",
    "periodSeconds",
    "topologyKey",
    "appProtocol",
}


def check(bundle: Bundle) -> Found:
    """Every value that has not the form of its place."""
    for item in bundle.objects:
        yield from ((item, path, words) for path, words in _metadata(item))
        for path, key, value in walk(item.get("spec", {}), "spec"):
            if key in _LOOKED_AT:
                yield from ((item, path, words) for words in _value(path, key, value))
    for item in bundle.of("ConfigMap", "Secret"):
        for part in ("data", "binaryData", "stringData"):
            for key in item.get(part, {}):
                if not _DATA_KEY.fullmatch(key) or key in (".", ".."):
                    yield item, f"{part}.{key}", "is no name for a key: letters, digits, '-', '_' and '.'"


def quantity(value: Any) -> float | None:
    """What a quantity is worth; None when it is none."""
    text = str(value)
    if isinstance(value, bool) or not _QUANTITY.fullmatch(text):
        return None
    match = re.fullmatch(r"([+-]?[\d.]+)(.*)", text)
    if match is None:
        return None
    number, unit = float(match[1]), match[2]
    return float(text) if unit[:1] in ("e", "E") and len(unit) > 1 else number * _FACTORS[unit]


def share(value: int | str, whole: int, *, up: bool) -> int:
    """A number, or a percentage of `whole` rounded up or down; 0 for what is neither."""
    if isinstance(value, int) or not _PERCENT.fullmatch(value):
        return value if isinstance(value, int) else 0
    part = int(value.removesuffix("%")) * whole
    return -(-part // 100) if up else part // 100


def _metadata(item: Json) -> Iterator[tuple[str, str]]:
    form = {"Service": _LABEL_1035, "Namespace": _LABEL}.get(item["kind"], _SUBDOMAIN)
    if not form.fullmatch(name(item)):
        yield "metadata.name", f"{name(item)!r} is no name for a {item['kind']}: lower case, digits and '-'"
    where = item["metadata"].get("namespace", "x")
    if not _LABEL.fullmatch(where):
        yield "metadata.namespace", f"{where!r} is no name for a namespace"
    for part in ("labels", "annotations"):
        for key, value in item["metadata"].get(part, {}).items():
            yield from ((f"metadata.{part}.{key}", words) for words in _label(key, value, part == "labels"))


def _label(key: str, value: Any, is_label: bool = True) -> Iterator[str]:
    prefix, slash, word = key.rpartition("/")
    if not _WORD.fullmatch(word) or (slash and not _SUBDOMAIN.fullmatch(prefix)):
        yield f"{key!r} is no name such as app.kubernetes.io/name"
    if is_label and value and not (isinstance(value, str) and _WORD.fullmatch(value)):
        yield f"{value!r} is no value for a label: at most 63 letters, digits, '-', '_' and '.'"


def _value(path: str, key: str, value: Any) -> Iterator[str]:
    for rule in (_text, _number, _type, _named):
        yield from rule(path, key, value)
    if isinstance(value, dict):
        parent = path.rpartition(".")[2]
        if parent in _LABELS and ".rules[" not in path:
            yield from (words for each in value.items() for words in _label(*each))
        elif parent in ("limits", "requests"):
            yield from (words for each in value.items() for words in _amount(*each))


def _text(path: str, key: str, value: Any) -> Iterator[str]:
    if isinstance(value, str) and key in ENUMS and value not in ENUMS[key]:
        yield f"{value!r} is none of {', '.join(sorted(ENUMS[key]))}"
    if key in ("mountPath", "workingDir") and isinstance(value, str) and not value.startswith("/"):
        yield f"{value!r} is no absolute path"
    if key == "mountPath" and ":" in str(value):
        yield f"{value!r} has a ':'"
    if key == "path" and ".httpGet." in path and not str(value).startswith("/"):
        yield f"{value!r} does not begin with '/'"
    if key in ("topologyKey", "appProtocol"):
        yield from _label(str(value), "")
    if key in ("subPath", "path") and ".." in str(value).split("/"):
        yield f"{value!r} leads out of its volume"
    if key == "sizeLimit" and (quantity(value) or 0) <= 0:
        yield f"{value!r} is no quantity above 0"


def _number(path: str, key: str, value: Any) -> Iterator[str]:
    if isinstance(value, int) and not isinstance(value, bool):
        least, most = RANGES.get(key, (-_MOST, _MOST * 2))
        if key == "periodSeconds":
            least, most = 1, 1800 if ".policies[" in path else _MOST
        if not least <= value <= most:
            yield f"{value} is not between {least} and {most}"
    if key in _NUMBERS_OR_SHARES and isinstance(value, str) and not _PERCENT.fullmatch(value):
        yield f"{value!r} is neither a number nor a percentage such as 25%"
    if key in _NUMBERS_OR_SHARES and isinstance(value, int) and value < 0:
        yield f"{value} is below 0"
    if key in ("port", "targetPort"):
        yield from _port(path, key, value)


def _port(path: str, key: str, value: Any) -> Iterator[str]:
    if isinstance(value, int) and not 0 < value < 65536:
        yield f"{value} is no port: 1 to 65535"
    if isinstance(value, str) and not path.startswith("spec.rules") and not _PORT_NAME.fullmatch(value):
        number = ", and a number stands without quotation marks" if value.isdigit() else ""
        yield f"{value!r} is no name for a port: at most 15 of a-z, 0-9 and '-', with a letter{number}"


def _type(path: str, key: str, value: Any) -> Iterator[str]:
    if key != "type" or not isinstance(value, str):
        return
    place = re.sub(r"\[.*?\]", "", path).split(".")[-2]
    allowed = _KINDS_OF_SERVICE if path == "spec.type" else TYPES.get(place)
    if allowed is not None and value not in allowed and ".triggers" not in path:
        yield f"{value!r} is none of {', '.join(sorted(allowed))}"


def _named(path: str, key: str, value: Any) -> Iterator[str]:
    """The `name` of containers, volumes, ports and variables."""
    if key != "name" or not isinstance(value, str):
        return
    parent = re.sub(r"\[[^\]]*\]", "", path).split(".")[-2]
    form: re.Pattern[str] | None = {
        **dict.fromkeys(("containers", "initContainers", "volumes"), _LABEL),
        "env": _VARIABLE,
        "ports": _LABEL if path.startswith("spec.ports") else _PORT_NAME,
    }.get(parent)
    if form is not None and not form.fullmatch(value):
        most = "at most 15 of a-z, 0-9 and '-', with a letter" if form is _PORT_NAME else "as DNS has them"
        yield f"{value!r} is no name here: {most if parent != 'env' else 'letters, digits and _'}"


def _amount(resource: str, value: Any) -> Iterator[str]:
    """One resource of requests or limits."""
    known = ("cpu", "memory", "ephemeral-storage", "storage")
    if resource not in known and "/" not in resource and not resource.startswith("hugepages-"):
        yield f"{resource!r} is no resource: {', '.join(known)}"
    amount = quantity(value)
    if amount is None:
        yield f"{resource}: {value!r} is no quantity such as 500m, 2 or 128Mi"
    elif amount < 0 or (amount == 0 and resource == "storage"):
        yield f"{resource}: {value!r} is too little"
    elif resource == "cpu" and (amount > 256 or str(value).endswith("i")):
        yield f"cpu: {value!r} is {amount:g} processors"
    elif resource in known[1:] and 0 < amount < 1024 * 1024:
        yield f"{resource}: {value!r} is {amount:g} bytes"

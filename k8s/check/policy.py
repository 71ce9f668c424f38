"""Policy: what a cluster would take, and ours does not: the pod security standard `restricted`, and some
more.

Takes a bundle; yields privileges, secrets in clear text, images that may change, pods without limits,
namespaces where everybody reaches everybody, workloads that a drained node would end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain

from k8s.check.bundle import Bundle, Found, Json, Pod, fits, name, namespace, walk
from k8s.check.network import denied_by_default
from k8s.check.pods import PROBES, Said
from k8s.check.scaling import least

_VOLUMES = {
    "configMap",
    "secret",
    "projected",
    "emptyDir",
    "persistentVolumeClaim",
    "csi",
    "downwardAPI",
    "ephemeral",
}
_SYSCTLS = {"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start"}
_SYSCTLS |= {"net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports"}
_SECRET = re.compile(r"PASSWORD|PASSWD|SECRET|TOKEN|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_KEY")
_IN_A_URL = re.compile(r"://[^/\s:@\"']*:[^/\s@\"']+@")
_TAG = re.compile(r".+?(?::(?P<tag>[\w][\w.-]{0,127}))?(?:@sha256:(?P<digest>[0-9a-f]{64}))?", re.ASCII)
_SELECTORS = {f"app.kubernetes.io/{word}" for word in ("name", "component", "instance")}
_HASTY = 30  # seconds without an answer, at the least, before something is killed
_PSS = "pod-security.kubernetes.io/enforce"


def check(bundle: Bundle) -> Found:
    """Everything that goes against it."""
    for pod in bundle.pods():
        for said in chain.from_iterable(rule(pod) for rule in _RULES):
            yield (pod.owner, *said)
        yield from ((pod.owner, *said) for said in _survives(bundle, pod))
    for item in bundle.objects:
        for rule in _OF_KIND.get(item["kind"], ()):
            yield from ((item, *said) for said in rule(item))
    for item in bundle.of("Namespace"):
        if any(pod.namespace == name(item) for pod in bundle.pods()):
            yield from ((item, *said) for said in denied_by_default(bundle, name(item)))


def _pod_security(pod: Pod) -> Said:
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.spec.get(key):
            yield f"{pod.path}.{key}", "shares the node's"
    context = pod.spec.get("securityContext", {})
    for each in context.get("sysctls", []):
        if each["name"] not in _SYSCTLS:
            yield f"{pod.path}.securityContext.sysctls", f"{each['name']} is not allowed"
    for volume in pod.spec.get("volumes", []):
        path = f"{pod.path}.volumes[{volume['name']}]"
        for kind in volume.keys() - {"name"} - _VOLUMES:
            yield path, f"{kind} is not allowed"
        if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
            yield path, "has no sizeLimit, and could fill the node"
    if "ephemeralContainers" in pod.spec:
        yield f"{pod.path}.ephemeralContainers", "are for debugging"


def _container_security(pod: Pod) -> Said:
    around = pod.spec.get("securityContext", {})
    for path, container in pod.containers():
        own = container.get("securityContext", {})
        told = {**around, **own}
        yield from ((f"{path}.securityContext", words) for words in _context(own, told))
        for port in container.get("ports", []):
            if port.get("hostPort"):
                yield f"{path}.ports", f"takes port {port['hostPort']} of the node"
        if not own.get("readOnlyRootFilesystem"):
            yield f"{path}.securityContext.readOnlyRootFilesystem", "is not true"


def _context(own: Json, told: Json) -> Iterator[str]:
    wanted = {
        "runAsNonRoot is not true": told.get("runAsNonRoot") is True,
        "runAsUser has to be a number, and not 0": told.get("runAsUser", 0) and told.get("runAsGroup", 1),
        "privileged is not allowed": not own.get("privileged"),
        "allowPrivilegeEscalation is not false": own.get("allowPrivilegeEscalation") is False,
        "procMount is not Default": own.get("procMount", "Default") == "Default",
    }
    yield from (words for words, holds in wanted.items() if not holds)
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []):
        yield "capabilities does not drop ALL"
    for each in set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
        yield f"capabilities adds {each}"
    for profile in ("seccompProfile", "appArmorProfile"):
        if told.get(profile, {}).get("type") == "Unconfined" or (
            profile == "seccompProfile" and profile not in told
        ):
            yield f"{profile} is not RuntimeDefault"
    options = told.get("seLinuxOptions", {})
    if options.get("user") or options.get("role") or told.get("windowsOptions", {}).get("hostProcess"):
        yield "seLinuxOptions and windowsOptions are not allowed"


def _identity(pod: Pod) -> Said:
    if pod.spec.get("automountServiceAccountToken") is not False:
        yield (
            f"{pod.path}.automountServiceAccountToken",
            "is not false: nothing here speaks to the API server",
        )
    if pod.spec.get("serviceAccountName", "default") == "default":
        yield f"{pod.path}.serviceAccountName", "is the namespace's default, which others may give rights to"
    if pod.spec.get("enableServiceLinks") is not False:
        yield f"{pod.path}.enableServiceLinks", "is not false: each Service would make variables in each pod"
    for volume in pod.spec.get("volumes", []):
        if any("serviceAccountToken" in each for each in volume.get("projected", {}).get("sources", [])):
            yield f"{pod.path}.volumes[{volume['name']}]", "brings a token of the API server"


def _image(pod: Pod) -> Said:
    for path, container in pod.containers():
        image = container.get("image", "")
        match = _TAG.fullmatch(image)
        if match is None or re.search(r"\s", image):
            yield f"{path}.image", f"{image!r} is no image"
        elif match["digest"] is None and match["tag"] in (None, "latest"):
            yield f"{path}.image", f"{image!r} may be another one tomorrow: name a version"
        if container.get("imagePullPolicy") == "Never":
            yield f"{path}.imagePullPolicy", "is Never: no other node has the image"


def _limits(pod: Pod) -> Said:
    for path, container in pod.containers():
        for part in ("requests", "limits"):
            for resource in ("cpu", "memory"):
                if resource not in container.get("resources", {}).get(part, {}):
                    yield f"{path}.resources", f"{part} say nothing of {resource}"


def _watched(pod: Pod) -> Said:
    if pod.owner["kind"] in ("Job", "CronJob"):
        return
    for path, container in pod.containers("containers"):
        for kind in PROBES:
            if kind not in container:
                yield f"{path}.{kind}", "is missing"
        for kind in ("startupProbe", "livenessProbe"):
            probe = container.get(kind, {})
            patience = probe.get("failureThreshold", 3) * probe.get("periodSeconds", 10)
            if patience < _HASTY:
                yield (
                    f"{path}.{kind}",
                    f"kills after {patience} s: {_HASTY} at the least, a machine may be busy",
                )
        told = [container.get(kind, {}).get("httpGet") for kind in ("livenessProbe", "readinessProbe")]
        if told[0] is not None and told[0] == told[1]:
            yield f"{path}.livenessProbe", "asks what readiness asks: who is not ready would be killed"


def _secrets(pod: Pod) -> Said:
    for path, container in pod.containers():
        for variable in container.get("env", []):
            value = variable.get("value", "")
            if value and (_SECRET.search(variable["name"]) or _IN_A_URL.search(value)):
                yield f"{path}.env[{variable['name']}]", "is a secret in clear text: use secretKeyRef"
        for text in (*container.get("args", []), *container.get("command", [])):
            if _IN_A_URL.search(text):
                yield path, "has a password on its command line"


def _survives(bundle: Bundle, pod: Pod) -> Said:
    """What runs more than once keeps running when a node is drained."""
    if pod.owner["kind"] not in ("Deployment", "StatefulSet") or least(bundle, pod) < 2:
        return
    budgets = [each for each in bundle.of("PodDisruptionBudget") if namespace(each) == pod.namespace]
    if not any(fits(each["spec"].get("selector", {}), pod.labels) for each in budgets):
        yield "metadata.name", "has no PodDisruptionBudget"
    if not pod.spec.get("topologySpreadConstraints"):
        yield pod.path, "has no topologySpreadConstraints: one node could have all of them"
    rolling = pod.owner["spec"].get("strategy", {}).get("rollingUpdate", {})
    if pod.owner["kind"] == "Deployment" and rolling.get("maxUnavailable", "25%") not in (0, "0%"):
        yield (
            "spec.strategy.rollingUpdate.maxUnavailable",
            "is not 0: a rollout would take pods before others are ready",
        )
    if pod.owner["spec"].get("strategy", {}).get("type") == "Recreate":
        yield "spec.strategy.type", "Recreate ends all pods before it starts others"


def _selector(item: Json) -> Said:
    keys = set(item["spec"].get("selector", {}).get("matchLabels", {}))
    for key in sorted(keys - _SELECTORS):
        yield (
            "spec.selector.matchLabels",
            f"{key}: a selector can't be changed later, so it has nothing that may change",
        )


def _claim_templates(item: Json) -> Said:
    for claim in item["spec"].get("volumeClaimTemplates", []):
        for key in sorted(set(claim["metadata"].get("labels", {})) - _SELECTORS):
            path = f"spec.volumeClaimTemplates[{claim['metadata']['name']}]"
            yield path, f"{key}: a claim's template can't be changed later, so it has nothing that may change"


def _secret(item: Json) -> Said:
    if item.get("data") or item.get("stringData"):
        yield "data", "holds secrets in a file: a site brings them, or something that encrypts them"


def _config(item: Json) -> Said:
    for key, text in item.get("data", {}).items():
        if _IN_A_URL.search(text) or "PRIVATE KEY-----" in text:
            yield f"data.{key}", "has a password or a key in clear text"


def _service(item: Json) -> Said:
    kind = item["spec"].get("type", "ClusterIP")
    if kind != "ClusterIP" or item["spec"].get("externalIPs"):
        yield "spec.type", f"{kind} opens it to the outside: that is for an Ingress or a Gateway"


def _namespace(item: Json) -> Said:
    level = item["metadata"].get("labels", {}).get(_PSS)
    if level != "restricted":
        yield f"metadata.labels.{_PSS}", f"is {level or 'missing'}, and should be restricted"
    for mode in ("enforce", "audit", "warn"):
        version = (
            item["metadata"].get("labels", {}).get(f"pod-security.kubernetes.io/{mode}-version", "latest")
        )
        if not re.fullmatch(r"latest|v1\.\d+", version):
            yield f"metadata.labels.{_PSS}", f"{mode}-version is {version!r}, and no version such as v1.30"


def _account(item: Json) -> Said:
    if item.get("automountServiceAccountToken") is not False:
        yield "automountServiceAccountToken", "is not false"


def _role(item: Json) -> Said:
    for path, _, value in walk(item.get("rules", []), "rules"):
        if value == "*":
            yield path, "'*' is everything"


def _role_binding(item: Json) -> Said:
    if item["roleRef"]["name"] in ("cluster-admin", "admin", "edit"):
        yield "roleRef", f"{item['roleRef']['name']} is far more than anything here needs"


_RULES: tuple[Callable[[Pod], Said], ...] = (
    _pod_security,
    _container_security,
    _identity,
    _image,
    _limits,
    _watched,
    _secrets,
)
_OF_KIND: dict[str, tuple[Callable[[Json], Said], ...]] = {
    **dict.fromkeys(("Deployment", "DaemonSet", "ReplicaSet"), (_selector,)),
    "StatefulSet": (_selector, _claim_templates),
    "Secret": (_secret,),
    "ConfigMap": (_config,),
    "Service": (_service,),
    "Namespace": (_namespace,),
    "ServiceAccount": (_account,),
    **dict.fromkeys(("Role", "ClusterRole"), (_role,)),
    **dict.fromkeys(("RoleBinding", "ClusterRoleBinding"), (_role_binding,)),
}

"""Agreement with the code: what a manifest says of our services is what they do.

Takes a bundle; yields settings that do not exist, files that would not load, ports that nobody listens on,
probes of the wrong route, grace that is too short, ways that policies close, versions that differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain
from urllib.parse import urlsplit

from common import __version__, log, redis_url
from common.http import PROBES
from common.references import PREFIX
from common.service import PATIENCE
from common.settings import Settings
from common.stored import scheme
from common.units import Address, Secret
from ingest.serve import GRACE
from k8s.check.bundle import Bundle, Found, Json, Pod, fits, name, namespace
from k8s.check.network import lets_in, reaches, ways
from k8s.check.pods import Said
from k8s.check.references import DASHBOARD
from k8s.check.staged import CONFIG, Outcome, load_as, stage

OURS = "redispatch"
SERVICES = ("ingest", "dispatcher", "console")
UID = 65532  # the image's
_NO_SETTINGS = (CONFIG, log.STYLE, log.LEVEL, log.RATE)
HEALTHZ, READYZ, _ = PROBES
_LABEL, _COMPONENT, _VERSION = (f"app.kubernetes.io/{word}" for word in ("name", "component", "version"))
_SPARE = 5.0  # seconds between the end of a drain and SIGKILL
_ENDPOINTS = 5  # seconds, at the least, until nodes send nothing more to a pod that leaves
_HASTY = 30  # seconds without an answer, at the least, before something is killed
_PROMETHEUS = {"kubernetes.io/metadata.name": "monitoring"}


class Ours:
    """One container of ours, with what it would load."""

    def __init__(self, bundle: Bundle, pod: Pod, path: str, container: Json, service: str) -> None:
        self.bundle, self.pod, self.path = bundle, pod, path
        self.container, self.service = container, service
        self.stage = stage(bundle, pod, container, service)
        self.outcome: Outcome = load_as(self.stage)

    @property
    def settings(self) -> Settings | None:
        """None when they would not load."""
        return self.outcome.settings

    @property
    def listen(self) -> Address | None:
        """Where it listens."""
        return None if self.settings is None else Address.parse(getattr(self.settings, self.service).listen)


def check(bundle: Bundle) -> Found:
    """Everything that does not agree."""
    found = []
    for pod in bundle.pods():
        if pod.labels.get(_LABEL) != OURS and not any(_is_ours(each) for _, each in pod.containers()):
            continue
        for path, container in pod.containers("containers"):
            service = _service(container)
            if service is None or not _is_ours(container):
                yield pod.owner, path, f"runs no service of {OURS}: image and command say another thing"
                continue
            found.append(service)
            ours = Ours(bundle, pod, path, container, service)
            for said in chain.from_iterable(rule(ours) for rule in _RULES):
                yield (pod.owner, *said)
    for service in ("ingest", "dispatcher"):
        if service not in found and bundle.objects:
            yield bundle.objects[0], "", f"nothing here runs {service}"
    for item in bundle.objects:
        yield from ((item, *said) for said in _versions(item))


def _is_ours(container: Json) -> bool:
    image = re.sub(r"@.*|:[^/]*$", "", container.get("image", ""))
    return image.rpartition("/")[2] == OURS


def _service(container: Json) -> str | None:
    words = [*container.get("command", []), *container.get("args", [])]
    if len(words) == 3 and words[:2] == ["python", "-m"] and words[2] in ("ingest", "dispatcher"):
        return str(words[2])
    return str(words[1]) if len(words) == 2 and words[0] == OURS and words[1] in SERVICES else None


def _environment(ours: Ours) -> Said:
    sections = "|".join(field.upper() for field in Settings.__struct_fields__)
    for variable in ours.container.get("env", []):
        path, word = f"{ours.path}.env[{variable['name']}]", variable["name"]
        if (
            word.upper().startswith(PREFIX)
            and word != CONFIG
            and not re.match(rf"{PREFIX}({sections})_\w", word)
        ):
            yield path, "is no setting"
        told = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        if word == "HOSTNAME" and told != "metadata.name":
            yield path, "has to be the pod's name (metadata.name), which consumers are called by"
    if ours.service == "dispatcher" and "HOSTNAME" not in dict(ours.stage.environ):
        yield ours.path, "has no HOSTNAME from metadata.name, which consumers are called by"


def _configuration(ours: Ours) -> Said:
    if not any(path == ours.stage.config for path, _ in ours.stage.files):
        yield f"{ours.path}.volumeMounts", f"{CONFIG} is {ours.stage.config}, and no volume has it there"
        return
    yield from ((ours.path, f"would not load: {fault}") for fault in ours.outcome.faults)
    for mount in ours.container.get("volumeMounts", []):
        volume = ours.pod.volume(mount["name"]) or {}
        if "subPath" in mount and ("configMap" in volume or "secret" in volume):
            yield (
                f"{ours.path}.volumeMounts[{mount['name']}]",
                "a file by subPath is never renewed: no reload",
            )
        source = volume.get("configMap", {}).get("name")
        item = ours.bundle.find("ConfigMap", source, ours.pod.namespace) if source else None
        if item is not None and item.get("immutable"):
            yield f"{ours.path}.volumeMounts[{mount['name']}]", f"ConfigMap {source} is immutable: no reload"


def _ports(ours: Ours) -> Said:
    if ours.listen is None:
        return
    if ours.listen.loopback:
        yield (
            ours.path,
            f"{ours.service} listens on loopback, where neither probes nor anybody else get to it",
        )
    told = [port["containerPort"] for port in ours.container.get("ports", [])]
    if ours.listen.port not in told:
        yield f"{ours.path}.ports", f"{ours.service} listens on {ours.listen.port}, and no containerPort is"
    for port in told:
        if port != ours.listen.port:
            yield (
                f"{ours.path}.ports",
                f"nothing listens on {port}: {ours.service}.listen is {ours.listen.port}",
            )


def _probes(ours: Ours) -> Said:
    tls = ours.settings is not None and ours.service == "ingest" and ours.settings.ingest.tls.cert is not None
    wanted = {"startupProbe": HEALTHZ, "livenessProbe": HEALTHZ, "readinessProbe": READYZ}
    for kind, route in wanted.items():
        probe = ours.container.get(kind)
        if probe is None:
            continue
        path, get = f"{ours.path}.{kind}", probe.get("httpGet")
        if get is None or get.get("path") != route:
            yield path, f"has to ask {route}: {_WHY[kind]}"
        elif get.get("scheme", "HTTP") != ("HTTPS" if tls else "HTTP"):
            yield path, f"asks by {get.get('scheme', 'HTTP')}, and {ours.service} speaks the other"
        patience = probe.get("failureThreshold", 3) * probe.get("periodSeconds", 10)
        if kind != "readinessProbe" and patience < max(_HASTY, PATIENCE):
            yield path, f"kills after {patience} s: {_HASTY} at the least, since a machine may be busy"


_WHY = {
    "startupProbe": "an absent Redis is no reason to kill what has just begun",
    "livenessProbe": "an absent Redis is no reason to kill what works",
    "readinessProbe": "it says when there is work to be had",
}


def _grace(ours: Ours) -> Said:
    if ours.settings is None:
        return
    grace = ours.pod.spec.get("terminationGracePeriodSeconds", 30)
    drain = {"dispatcher": float(ours.settings.dispatcher.drain_timeout)}.get(ours.service, GRACE)
    pause = _pause(ours.container)
    if grace < pause + drain + _SPARE:
        words = f"is {grace}: preStop takes {pause} s, the drain {drain:g}, and {_SPARE:g} are to spare"
        yield f"{ours.pod.path}.terminationGracePeriodSeconds", words
    if _led_to(ours) and pause < _ENDPOINTS:
        words = (
            f"has to sleep for {_ENDPOINTS} s or more: a Service sends requests until its nodes have heard"
        )
        yield f"{ours.path}.lifecycle.preStop", words
    if ours.service == "ingest" and not _led_to(ours):
        yield ours.path, "no Service leads to it"


def _pause(container: Json) -> int:
    hook = container.get("lifecycle", {}).get("preStop", {})
    command = hook.get("exec", {}).get("command", [])
    told = hook.get("sleep", {}).get("seconds")
    if told is None and len(command) == 2 and command[0] == "sleep" and str(command[1]).isdigit():
        told = command[1]
    return int(told or 0)


def _led_to(ours: Ours) -> bool:
    for item in ours.bundle.of("Service"):
        selector = item["spec"].get("selector")
        if (
            selector
            and namespace(item) == ours.pod.namespace
            and fits({"matchLabels": selector}, ours.pod.labels)
        ):
            return True
    return False


def _user(ours: Ours) -> Said:
    told = {**ours.pod.spec.get("securityContext", {}), **ours.container.get("securityContext", {})}
    for key in ("runAsUser", "runAsGroup"):
        if told.get(key, UID) != UID:
            yield f"{ours.path}.securityContext.{key}", f"is {told[key]}, and the image's files are {UID}'s"


def _objects(ours: Ours) -> Said:
    """A directory of objects is one that all of them see, and may write to."""
    if ours.settings is None or scheme(ours.settings.objects.url) is not None:
        return
    url = ours.outcome.objects
    for mount in ours.container.get("volumeMounts", []):
        if f"{url}/".startswith(f"{mount['mountPath'].rstrip('/')}/"):
            volume = ours.pod.volume(mount["name"]) or {}
            if "persistentVolumeClaim" not in volume or volume.get("template"):
                yield (
                    f"{ours.path}.volumeMounts[{mount['name']}]",
                    "objects are in a volume that no other pod sees",
                )
            if mount.get("readOnly"):
                yield (
                    f"{ours.path}.volumeMounts[{mount['name']}]",
                    "objects are in a volume that is read only",
                )
            if "fsGroup" not in ours.pod.spec.get("securityContext", {}):
                yield f"{ours.pod.path}.securityContext", "has no fsGroup: the volume of objects is root's"
            return
    yield f"{ours.path}.volumeMounts", f"objects.url is {url}, and no volume is there"


def _ways(ours: Ours) -> Said:
    """What it has to reach, and who has to reach it."""
    if ours.settings is None:
        return
    for protocol in ("UDP", "TCP"):
        if not any(ways(ours.bundle, ours.pod, "Egress", 53, protocol)):
            yield "", f"no NetworkPolicy lets it ask DNS by {protocol}"
    yield from (("", words) for words in _redis(ours))
    for what, port in _remote(ours):
        if not any(ways(ours.bundle, ours.pod, "Egress", port)):
            yield "", f"no NetworkPolicy lets it reach {what} at port {port}"
    port = ours.listen.port if ours.listen is not None else 0
    if any(ours.bundle.of("PodMonitor")) and not lets_in(ours.bundle, ours.pod, port, _PROMETHEUS):
        yield "", f"no NetworkPolicy lets Prometheus scrape port {port}"
    if ours.service == "ingest" and not any(ways(ours.bundle, ours.pod, "Ingress", port)):
        yield "", f"no NetworkPolicy lets anybody send to port {port}"


def _redis(ours: Ours) -> Iterator[str]:
    url = redis_url.parse(ours.settings.redis.url) if ours.settings is not None else None
    nodes = list(url.nodes) if url is not None else []
    if url is not None and not nodes:
        parts = urlsplit(url.plain)
        nodes = [Address(parts.hostname, parts.port or 6379)] if parts.hostname else []
    for node in nodes:
        yield from _server(ours, node.host, node.port)


def _server(ours: Ours, host: str, port: int) -> Iterator[str]:
    """Redis, or a sentinel; a name without a dot is a Service beside it."""
    if "." in host or ":" in host:
        if not any(ways(ours.bundle, ours.pod, "Egress", port)):
            yield f"no NetworkPolicy lets it reach Redis at port {port}"
        return
    service = ours.bundle.find("Service", host, ours.pod.namespace)
    if service is None:
        yield f"redis.url names {host}, and there is no such Service"
        return
    if port not in [each["port"] for each in service["spec"].get("ports", [])]:
        yield f"redis.url names port {port}, and Service {host} has none such"
    for pod in ours.bundle.selected({"matchLabels": service["spec"].get("selector", {})}, ours.pod.namespace):
        if not reaches(ours.bundle, ours.pod, pod, port):
            yield f"no NetworkPolicy lets it reach {name(pod.owner)} at port {port}"


def _remote(ours: Ours) -> Iterator[tuple[str, int]]:
    settings = ours.settings
    if settings is None:
        return
    if scheme(settings.objects.url) in ("s3", "gs", "az"):
        yield "the bucket", 443
    for destination in settings.destinations if ours.service == "dispatcher" else ():
        url = getattr(destination, "url", None)
        parts = urlsplit(url.reveal() if isinstance(url, Secret) else str(url or ""))
        if parts.hostname:
            yield destination.name, parts.port or (80 if parts.scheme == "http" else 443)


def _image(ours: Ours) -> Said:
    tag = re.search(r":([^/:@]+)(@|$)", ours.container["image"])
    if tag is not None and tag[1] not in (__version__, "latest"):
        yield f"{ours.path}.image", f"is version {tag[1]}, and this is {__version__}"
    component = ours.pod.labels.get(_COMPONENT)
    if component != ours.service or ours.pod.labels.get(_LABEL) != OURS:
        yield (
            f"{ours.pod.path}",
            f"runs {ours.service}, and its labels say {ours.pod.labels.get(_LABEL)}, {component}",
        )


def _versions(item: Json) -> Said:
    labels = item["metadata"].get("labels", {})
    told = labels.get(_VERSION)
    if told not in (None, __version__):
        yield f"metadata.labels.{_VERSION}", f"is {told}, and this is {__version__}"
    if item["kind"] in ("Deployment", "StatefulSet") and not {_LABEL, _COMPONENT} <= labels.keys():
        yield "metadata.labels", f"lacks {_LABEL} or {_COMPONENT}"
    if DASHBOARD in labels and labels.get(_LABEL) != OURS:
        yield f"metadata.labels.{_LABEL}", f"is not {OURS}"


_RULES: tuple[Callable[[Ours], Said], ...] = (
    _environment,
    _configuration,
    _ports,
    _probes,
    _grace,
    _user,
    _objects,
    _ways,
    _image,
)

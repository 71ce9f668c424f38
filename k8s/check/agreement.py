"""Agreement with the code: what a manifest says of our services is what they do.

Takes a bundle; yields settings that do not exist, files that would not load, ports that nobody listens on,
probes of the wrong route, grace that is too short, ways that policies close, versions that differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import chain
from pathlib import Path

import yaml

from common import __version__
from common.http import PROBES
from common.references import PREFIX
from common.settings import Settings
from common.stored import scheme
from ingest.serve import GRACE
from k8s.check.bundle import Bundle, Found, Json, fits, name, namespace
from k8s.check.ours import LABEL, OURS, Ours, find
from k8s.check.pods import Said
from k8s.check.reach import closed
from k8s.check.references import DASHBOARD
from k8s.check.scaling import least
from k8s.check.staged import CONFIG

GRAFANA = Path(__file__).parents[2] / "grafana"
UID = 65532  # the image's
HEALTHZ, READYZ, _ = PROBES
_COMPONENT, _VERSION = (f"app.kubernetes.io/{word}" for word in ("component", "version"))
_SPARE = 5.0  # seconds between the end of a drain and SIGKILL
_ENDPOINTS = 5  # seconds, at the least, until nodes send nothing more to a pod that leaves


def check(bundle: Bundle) -> Found:
    """Everything that does not agree."""
    found = []
    for pod, path, ours in find(bundle):
        if ours is None:
            yield pod.owner, path, f"runs no service of {OURS}: image and command say another thing"
            continue
        found.append(ours.service)
        for said in chain.from_iterable(rule(ours) for rule in _RULES):
            yield (pod.owner, *said)
    for service in ("ingest", "dispatcher"):
        if service not in found and bundle.objects:
            yield bundle.objects[0], "", f"nothing here runs {service}"
    for item in bundle.objects:
        yield from ((item, *said) for said in (*_versions(item), *_copied(item)))


def _copied(item: Json) -> Said:
    """What Prometheus and Grafana read is what stands in grafana/."""
    if item["kind"] == "PrometheusRule" and name(item) == OURS and item["spec"] != _our_rules():
        yield "spec", "is not what grafana/prometheus/rules.yaml says: python k8s/generate.py"
    if DASHBOARD in item["metadata"].get("labels", {}):
        for key, text in item.get("data", {}).items():
            file = GRAFANA / "dashboards" / key
            if not file.exists() or file.read_text("utf-8") != text:
                yield f"data.{key}", "is not what grafana/dashboards has under that name"


@cache
def _our_rules() -> Json:
    told: Json = yaml.safe_load((GRAFANA / "prometheus" / "rules.yaml").read_text("utf-8"))
    return told


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


def _bucket(ours: Ours) -> Said:
    """Credentials of S3: both, and a region; or a region and an identity of the pod's."""
    if ours.settings is None or scheme(ours.settings.objects.url) != "s3":
        return
    told = dict(ours.stage.environ)
    keys = [key for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if key in told]
    annotated = ours.bundle.find(
        "ServiceAccount", ours.pod.spec.get("serviceAccountName", ""), ours.pod.namespace
    )
    if len(keys) == 1 or (not keys and not (annotated or {}).get("metadata", {}).get("annotations")):
        yield ours.path, "objects are in a bucket: it needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    if not {"AWS_REGION", "AWS_DEFAULT_REGION"} & told.keys():
        yield ours.path, "objects are in a bucket: it needs AWS_REGION"


def _scratch(ours: Ours) -> Said:
    mounts = [mount["mountPath"].rstrip("/") for mount in ours.container.get("volumeMounts", [])]
    if "/tmp" not in mounts:  # noqa: S108 - the place itself is meant
        yield f"{ours.path}.volumeMounts", "has no /tmp, and its root can't be written"


def _several(ours: Ours) -> Said:
    """What alerts pass through is there more than once."""
    if ours.service != "console" and (pods := least(ours.bundle, ours.pod)) < 2:
        yield "spec.replicas", f"is {pods}: alerts would wait for as long as its node is away"


def _image(ours: Ours) -> Said:
    tag = re.search(r":([^/:@]+)(@|$)", ours.container["image"])
    if tag is not None and tag[1] not in (__version__, "latest"):
        yield f"{ours.path}.image", f"is version {tag[1]}, and this is {__version__}"
    if ours.pod.labels.get(_VERSION, __version__) != __version__:
        yield (
            f"{ours.pod.path}",
            f"its pods are labelled {ours.pod.labels[_VERSION]}, and this is {__version__}",
        )
    component = ours.pod.labels.get(_COMPONENT)
    if component != ours.service or ours.pod.labels.get(LABEL) != OURS:
        yield (
            f"{ours.pod.path}",
            f"runs {ours.service}, and its labels say {ours.pod.labels.get(LABEL)}, {component}",
        )


def _versions(item: Json) -> Said:
    labels = item["metadata"].get("labels", {})
    told = labels.get(_VERSION)
    if told not in (None, __version__):
        yield f"metadata.labels.{_VERSION}", f"is {told}, and this is {__version__}"
    if item["kind"] in ("Deployment", "StatefulSet") and not {LABEL, _COMPONENT} <= labels.keys():
        yield "metadata.labels", f"lacks {LABEL} or {_COMPONENT}"
    if DASHBOARD in labels and labels.get(LABEL) != OURS:
        yield f"metadata.labels.{LABEL}", f"is not {OURS}"


_RULES: tuple[Callable[[Ours], Said], ...] = (
    _environment,
    _configuration,
    _ports,
    _probes,
    _grace,
    _user,
    _objects,
    _bucket,
    _scratch,
    closed,
    _several,
    _image,
)

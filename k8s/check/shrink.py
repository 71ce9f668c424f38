"""Makes `data/` of published schemas: `python -m k8s.check.shrink VERSION=DEFINITIONS.json ... CRD.yaml ...`.

Takes the definitions of a Kubernetes version as `kubernetes-validate` has them in
`*-local-strict/_definitions.json`, and CustomResourceDefinitions. Leaves out descriptions and whatever the
kinds below don't lead to, and adds to those of CRDs what an API server means: unknown fields are refused,
null is nothing unless `nullable`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).parent / "data"
KINDS = (
    *(f"core.v1.{kind}" for kind in ("Namespace", "ServiceAccount", "ConfigMap", "Secret", "Service", "Pod")),
    *(f"core.v1.{kind}" for kind in ("PersistentVolumeClaim", "LimitRange", "ResourceQuota")),
    *(f"apps.v1.{kind}" for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")),
    *(f"autoscaling.{version}.HorizontalPodAutoscaler" for version in ("v1", "v2")),
    *(f"networking.v1.{kind}" for kind in ("NetworkPolicy", "Ingress", "IngressClass")),
    *(f"rbac.v1.{kind}" for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")),
    *("batch.v1.Job", "batch.v1.CronJob", "policy.v1.PodDisruptionBudget"),
    *("scheduling.v1.PriorityClass", "storage.v1.StorageClass"),
)
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_NEEDLESS = ("description", "default", "x-kubernetes-patch-merge-key", "x-kubernetes-patch-strategy")


def bare(node: Any, names: bool = False) -> Any:
    """Without what no check needs; `names`: the keys here are names of fields, and all stay."""
    if isinstance(node, dict):
        return {
            key: bare(value, names=key in ("properties", "$defs"))
            for key, value in node.items()
            if names or key not in _NEEDLESS
        }
    return [bare(each) for each in node] if isinstance(node, list) else node


def reached(definitions: dict[str, Any], start: Iterable[str]) -> dict[str, Any]:
    """Only the definitions that these lead to."""
    found: dict[str, Any] = {}
    ahead = [f"io.k8s.api.{name}" for name in start]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found[name] = bare(definitions[name])
            ahead += [part.partition('"')[0] for part in json.dumps(found[name]).split("#/$defs/")[1:]]
    return found


def closed(node: Any) -> Any:
    """A part of a CRD's schema as plain JSON Schema has to say it."""
    if not isinstance(node, dict):
        return node
    made = {
        key: closed(value) if key in ("items", "additionalProperties") else value
        for key, value in node.items()
    }
    if (
        "properties" in node
    ):  # allOf, anyOf and the like only restrict, and name fields that stand beside them
        made["properties"] = {name: closed(value) for name, value in node["properties"].items()}
        made.setdefault("additionalProperties", bool(node.get("x-kubernetes-preserve-unknown-fields")))
    if node.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
    if made.pop("nullable", False):
        made["type"] = [made["type"], "null"]
    return made


def resource(definition: dict[str, Any]) -> dict[str, Any]:
    """A CRD's served versions, by a name of ours; `metadata` is everybody's."""
    group, kind = definition["spec"]["group"], definition["spec"]["names"]["kind"]
    found = {}
    for version in definition["spec"]["versions"]:
        if version["served"]:
            schema = closed(bare(version["schema"]["openAPIV3Schema"]))
            schema["properties"].pop("status", None)
            schema["properties"]["metadata"] = {"$ref": f"#/$defs/{OBJECT_META}"}
            told = {"group": group, "version": version["name"], "kind": kind}
            found[f"{group}.{version['name']}.{kind}"] = schema | {"x-kubernetes-group-version-kind": [told]}
    return found


def write(path: Path, definitions: dict[str, Any]) -> None:
    """One definition per line."""
    lines = (
        f"{json.dumps(name)}: {json.dumps(definitions[name], sort_keys=True)}" for name in sorted(definitions)
    )
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def main(words: list[str]) -> int:
    """Write `data/`; the exit code."""
    resources: dict[str, Any] = {}
    for word in words:
        version, equals, path = word.partition("=")
        if equals:
            told = json.loads(Path(path).read_text("utf-8"))["$defs"]
            write(DATA / f"kubernetes-{version}.json", reached(told, KINDS))
        else:
            resources |= resource(yaml.safe_load(Path(word).read_text("utf-8")))
    write(DATA / "resources.json", resources)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

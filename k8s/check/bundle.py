"""The objects of one rendered overlay, and what most checks ask of them.

Takes YAML; returns a Bundle. Raises ValueError with a sentence for a person when it is none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

Json: TypeAlias = dict[str, Any]
Found: TypeAlias = Iterator[tuple[Json, str, str]]  # the object, the place in it, what is wrong there

CLUSTER_WIDE = (
    "Namespace",
    "ClusterRole",
    "ClusterRoleBinding",
    "PriorityClass",
    "StorageClass",
    "IngressClass",
)
_TEMPLATES = {
    "Pod": (),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
CONTAINERS = ("initContainers", "containers", "ephemeralContainers")


@dataclass(frozen=True)
class Finding:
    """Something that is wrong: which check says so, of which object, where in it, and what."""

    check: str
    about: str
    path: str
    words: str

    def __str__(self) -> str:
        return f"{self.about}: {self.path or 'itself'}: {self.words} [{self.check}]"


@dataclass(frozen=True)
class Pod:
    """What a workload makes pods of; `path` leads to its spec."""

    owner: Json
    labels: Mapping[str, str]
    spec: Json
    path: str

    @property
    def namespace(self) -> str:
        """Its owner's."""
        return namespace(self.owner)

    def containers(self, *lists: str) -> Iterator[tuple[str, Json]]:
        """Path and container, of all lists or of those named."""
        for kind in lists or CONTAINERS:
            for container in self.spec.get(kind, []):
                yield f"{self.path}.{kind}[{container['name']}]", container

    def ports(self) -> Iterator[Json]:
        """Those of its containers."""
        for _, container in self.containers("containers", "initContainers"):
            yield from container.get("ports", [])

    def has_port(self, port: int | str, protocol: str = "TCP") -> bool:
        """Whether a container says that it listens there; by number or by name."""
        key = "containerPort" if isinstance(port, int) else "name"
        return any(each.get(key) == port and each.get("protocol", "TCP") == protocol for each in self.ports())

    def volume(self, name: str) -> Json | None:
        """The volume of that name; claims of a StatefulSet's templates are volumes, too."""
        for volume in self.spec.get("volumes", []):
            if volume["name"] == name:
                told: Json = volume
                return told
        for claim in self.owner["spec"].get("volumeClaimTemplates", []):
            if claim["metadata"]["name"] == name:
                return {"name": name, "persistentVolumeClaim": {"claimName": name}, "template": True}
        return None


@dataclass(frozen=True)
class Bundle:
    """Everything that is applied together."""

    objects: tuple[Json, ...]

    def of(self, *kinds: str) -> Iterator[Json]:
        """Objects of these kinds."""
        return (each for each in self.objects if each["kind"] in kinds)

    def find(self, kind: str, wanted: str, where: str) -> Json | None:
        """The object of that kind, name and namespace."""
        return next(
            (each for each in self.of(kind) if name(each) == wanted and namespace(each) == where), None
        )

    def pods(self) -> Iterator[Pod]:
        """One for each workload."""
        for owner in self.of(*_TEMPLATES):
            path = _TEMPLATES[owner["kind"]]
            template = owner
            for step in path:
                template = template[step]
            labels = template.get("metadata", {}).get("labels", {})
            yield Pod(owner, labels, template["spec"], ".".join((*path, "spec")))

    def selected(self, selector: Json, where: str) -> list[Pod]:
        """Pods in that namespace that a label selector fits."""
        return [pod for pod in self.pods() if pod.namespace == where and fits(selector, pod.labels)]


def name(item: Json) -> str:
    """metadata.name."""
    told: str = item["metadata"]["name"]
    return told


def namespace(item: Json) -> str:
    """metadata.namespace; "" of what has none."""
    told: str = "" if item["kind"] in CLUSTER_WIDE else item["metadata"].get("namespace", "default")
    return told


def about(item: Any) -> str:
    """Kind and name for a person, also of what is no object at all."""
    if not isinstance(item, dict):
        return "a document"
    metadata = item.get("metadata")
    return f"{item.get('kind', '?')}/{metadata.get('name', '?') if isinstance(metadata, dict) else '?'}"


def fits(selector: Json, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects these labels; an empty one selects all."""
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions", []))


def _holds(expression: Json, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values", [])
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None


def walk(node: Any, path: str = "") -> Iterator[tuple[str, str, Any]]:
    """Path, key and value of everything below; the key of a list's item is that of its list."""
    if isinstance(node, dict):
        for key, value in node.items():
            below = f"{path}.{key}" if path else key
            yield below, key, value
            yield from walk(value, below)
    elif isinstance(node, list):
        key = path.rpartition(".")[2].partition("[")[0]
        for index, value in enumerate(node):
            named = value.get("name", index) if isinstance(value, dict) else index
            below = f"{path}[{named}]"
            yield below, key, value
            yield from walk(value, below)


class _Loader(yaml.CSafeLoader):
    """Refuses a key that stands twice in one mapping, as an API server does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise ValueError(f"line {node.start_mark.line + 1}: the key {twice} stands twice in one mapping")
        return super().construct_mapping(node, deep=True)


def parse(text: str) -> list[Any]:
    """The documents of a YAML file, lists of objects taken apart. Raises ValueError."""
    try:
        documents = [each for each in yaml.load_all(text, _Loader) if each is not None]
    except yaml.YAMLError as fault:
        raise ValueError(f"is no YAML: {' '.join(str(fault).split())}") from fault
    found: list[Any] = []
    for each in documents:
        many = isinstance(each, dict) and str(each.get("kind", "")).endswith("List") and "items" in each
        found += each["items"] if many else [each]
    return found


def read(path: Path) -> list[Any]:
    """The documents of that file. Raises ValueError and OSError."""
    return parse(path.read_text("utf-8"))

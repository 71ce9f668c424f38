"""What a container would load: its volumes and variables laid out in a directory, and `redispatch check` run
on it.

Takes a bundle, a pod and a container of ours; returns settings, or the faults. Secrets that a site brings
have the values of `k8s/provided.yaml`.
"""

from __future__ import annotations

import base64
import re
import tempfile
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from common.config import ConfigError, load
from common.references import PREFIX
from common.settings import Settings
from dispatcher.destinations import kinds
from ingest.senders import too_open
from k8s.check import provided
from k8s.check.bundle import Bundle, Json, Pod
from k8s.check.references import sources
from ops.check import examine

CONFIG = "REDISPATCH_CONFIG"
DOCKERFILE = Path(__file__).parents[2] / "Dockerfile"


@dataclass(frozen=True)
class Stage:
    """Files by their path in the container, where volumes are mounted, and the environment."""

    service: str
    files: tuple[tuple[str, str], ...]
    mounts: tuple[str, ...]
    environ: tuple[tuple[str, str], ...]

    @property
    def config(self) -> str:
        """The configuration's path."""
        return dict(self.environ).get(CONFIG, "redispatch.yaml")


@dataclass(frozen=True)
class Outcome:
    """Settings, unless there are faults, and `objects.url` as the container has it."""

    settings: Settings | None
    faults: tuple[str, ...] = ()
    objects: str = ""


def stage(bundle: Bundle, pod: Pod, container: Json, service: str) -> Stage:
    """Laid out, and not loaded yet."""
    files: dict[str, str] = {}
    mounts = container.get("volumeMounts", [])
    for mount in mounts:
        place = mount["mountPath"].rstrip("/")
        for path, text in _content(bundle, pod, mount["name"]).items():
            if "subPath" not in mount:
                files[f"{place}/{path}"] = text
            elif path == mount["subPath"]:
                files[place] = text
    environ = _environment(bundle, pod, container)
    places = {mount["mountPath"].rstrip("/") for mount in mounts} - {""}
    longest_first = tuple(sorted(places, key=len, reverse=True))
    return Stage(service, tuple(files.items()), longest_first, tuple(sorted(environ.items())))


def _content(bundle: Bundle, pod: Pod, name: str) -> dict[str, str]:
    """The files of a volume."""
    files: dict[str, str] = {}
    volume = pod.volume(name)
    for kind, source in sources(volume) if volume is not None else ():
        there = _values(bundle, kind, source.get("name", ""), pod.namespace)
        items = source.get("items") or [{"key": key, "path": key} for key in there]
        files |= {item["path"]: there.get(item["key"], "") for item in items}
    return {path: text for path, text in files.items() if ".." not in path.split("/")}


def _environment(bundle: Bundle, pod: Pod, container: Json) -> dict[str, str]:
    found = dict(_of_the_image())
    for each in container.get("envFrom", []):
        for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if key in each:
                told = _values(bundle, kind, each[key].get("name", ""), pod.namespace)
                found |= {each.get("prefix", "") + name: value for name, value in told.items()}
    for variable in container.get("env", []):
        value = variable.get("value", "")
        for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            told = variable.get("valueFrom", {}).get(key)
            if told is not None:
                value = _values(bundle, kind, told.get("name", ""), pod.namespace).get(told["key"], "")
        found[variable["name"]] = value
    return found


def _values(bundle: Bundle, kind: str, name: str, where: str) -> dict[str, str]:
    item = bundle.find(kind, name, where)
    if item is None:
        return (provided.secret(name) or {}) if kind == "Secret" else {}
    plain = item.get("stringData", {}) if kind == "Secret" else item.get("data", {})
    coded = item.get("data", {}) if kind == "Secret" else {}
    decoded = {key: base64.b64decode(value).decode("utf-8", "replace") for key, value in coded.items()}
    return {**plain, **decoded}


@lru_cache(maxsize=256)
def load_as(told: Stage) -> Outcome:
    """As that service would, and as `redispatch check` does."""
    with tempfile.TemporaryDirectory() as directory:
        moved = _Move(Path(directory), told.mounts)
        _lay_out(Path(directory), told, moved)
        environ = {name: moved(value) for name, value in told.environ}
        path = moved(told.config)
        try:
            settings = load(path, environ, None if told.service == "ingest" else kinds)
        except ConfigError as fault:
            return Outcome(None, tuple(str(each).replace(directory, "") for each in fault.faults))
        # ingest has no secrets of destinations; what is wrong with those is told by services that have
        found = [] if told.service == "ingest" else examine(path, environ=environ, ingest=False).faults
        why = too_open(settings) if told.service == "ingest" else None
        closed = [] if why is None else [f"ingest.listen: {why}"]
        texts = [*closed, *map(str, found), *_absent(settings.redis.url)]
        faults = tuple(each.replace(directory, "") for each in texts)
        return Outcome(settings, faults, settings.objects.url.removeprefix(directory))


def _absent(url: str) -> list[str]:
    """Files that the address of Redis names."""
    told = [value for key, value in parse_qsl(urlsplit(url).query) if key.startswith("ssl_")]
    return [
        f"redis.url: there is no {path}" for path in told if path.startswith("/") and not Path(path).exists()
    ]


def _lay_out(root: Path, told: Stage, moved: _Move) -> None:
    for mount in told.mounts:
        (root / mount.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for path, text in told.files:
        file = root / path.lstrip("/")
        if file.is_dir():
            file.rmdir()  # mounted by subPath
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(moved(text), "utf-8")


@cache
def _of_the_image() -> dict[str, str]:
    """Settings that the image brings as variables."""
    if not DOCKERFILE.exists():
        return {}
    lines = re.sub(r"\\\n", " ", DOCKERFILE.read_text("utf-8")).splitlines()
    told = " ".join(line for line in lines if line.startswith("ENV "))
    return dict(re.findall(rf"({PREFIX}\w+)=(\S+)", told))


class _Move:
    """Puts paths of the container below a directory."""

    def __init__(self, root: Path, mounts: tuple[str, ...]) -> None:
        self._root = root
        places = "|".join(re.escape(mount) for mount in mounts)
        self._pattern = re.compile(rf"(?<![\w/.-])(?:{places})(?![\w.-])") if mounts else None

    def __call__(self, text: str) -> str:
        """The text with all of them moved."""
        return (
            text
            if self._pattern is None
            else self._pattern.sub(lambda match: f"{self._root}{match[0]}", text)
        )

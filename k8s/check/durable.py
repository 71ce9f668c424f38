"""A Redis or Valkey in the bundle keeps what it is given: a file, on a volume that stays, and no eviction.

Takes a bundle; yields options that would lose alerts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from k8s.check.bundle import Bundle, Found, Json, Pod
from k8s.check.pods import Said
from k8s.check.values import quantity

PROGRAMS = ("valkey-server", "redis-server")
_KNOWN = {
    "dir",
    "appendfsync",
    "save",
    "maxmemory",
    "protected-mode",
    "port",
    "bind",
    "dbfilename",
    "aclfile",
}
_KNOWN |= {"tls-port", "tls-cert-file", "tls-key-file", "tls-ca-cert-file", "tls-auth-clients", "loglevel"}
_KNOWN |= {"requirepass", "appenddirname", "tcp-backlog", "maxclients", "auto-aof-rewrite-percentage"}
_WANTED = {
    "appendonly": ("yes", "what it holds is gone with its process"),
    "maxmemory-policy": ("noeviction", "it may evict alerts, and no service starts"),
}


def check(bundle: Bundle) -> Found:
    """What is wrong with each server."""
    for pod in bundle.pods():
        for path, container in pod.containers("containers"):
            words = [*container.get("command", []), *container.get("args", [])]
            if words and words[0] in PROGRAMS:
                options = dict(zip(words[1::2], words[2::2], strict=False))
                yield from ((pod.owner, *said) for said in _server(pod, path, container, options))
            elif re.search(r"(^|/)(valkey|redis)([:@]|$)", container.get("image", "")):
                yield (
                    pod.owner,
                    path,
                    f"runs {' '.join(words[:1]) or 'what its image says'}, not {PROGRAMS[0]}",
                )


def _server(pod: Pod, path: str, container: Json, options: dict[str, str]) -> Said:
    yield from ((f"{path}.args", words) for words in _options(options))
    place = options.get("--dir", "")
    mounted = [
        mount for mount in container.get("volumeMounts", []) if mount["mountPath"].rstrip("/") == place
    ]
    volumes = [pod.volume(mount["name"]) or {} for mount in mounted]
    if not any("persistentVolumeClaim" in volume for volume in volumes):
        yield f"{path}.volumeMounts", f"--dir is {place or 'missing'}, and no volume that stays is there"
    most = quantity(options.get("--maxmemory", "").upper().removesuffix("B").replace("K", "k") or "?")
    limit = quantity(container.get("resources", {}).get("limits", {}).get("memory", "?"))
    if most is None:
        yield f"{path}.args", "--maxmemory is missing: the container's limit would kill it"
    elif limit is not None and most * 1.5 > limit:
        yield (
            f"{path}.resources",
            "the limit of memory is not half as much again as --maxmemory: a rewrite copies pages",
        )


def _options(options: dict[str, str]) -> Iterator[str]:
    for option in options:
        if not option.startswith("--"):
            yield f"{option!r} stands where an option should: each has one value"
        elif option[2:] not in (*_WANTED, *_KNOWN):
            yield f"{option} is no option that is known here"
    if options.get("--appendfsync", "everysec") not in ("everysec", "always"):
        yield "--appendfsync is neither everysec nor always: the system decides what is kept"
    if options.get("--protected-mode", "yes") not in ("yes", "no"):
        yield "--protected-mode is neither yes nor no"
    for option, (value, why) in _WANTED.items():
        if options.get(f"--{option}") != value:
            yield f"--{option} is not {value}: {why}"

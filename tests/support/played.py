"""A Deployment of our manifests as `podman kube play` can run it, on this machine's network.

What podman 4.3 does not do as a cluster does is changed on the way: it would publish ports on all addresses,
turns HTTP probes into a `curl` that the image has not, and reads no `kind: Secret`. Replicas get variables of
their own, since they share the machine's ports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import yaml

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
Object = dict[str, Any]


def find(bundle: str, kind: str, name: str) -> Object:
    """One object of a rendered bundle."""
    objects = (one for one in yaml.safe_load_all(bundle) if one)
    found: Object = next(one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def replica(deployment: Object, number: int, image: str, environ: Mapping[str, str]) -> Object:
    """One replica, as a Deployment of its own: its variables are not the others'."""
    made = deepcopy(deployment)
    made["metadata"]["name"] += f"-{number}"
    made["spec"]["replicas"] = 1
    [container] = made["spec"]["template"]["spec"]["containers"]
    container |= {"image": image, "imagePullPolicy": "Never"}
    for name in ("ports", *PROBES):
        container.pop(name)
    told = [variable for variable in container["env"] if variable["name"] not in environ]
    container["env"] = told + [{"name": name, "value": value} for name, value in environ.items()]
    return made


def config_map(name: str, **files: str) -> Object:
    """Files for a volume."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": files}


def claims(deployment: Object) -> Iterator[Object]:
    """The volume claims that it wants."""
    for volume in deployment["spec"]["template"]["spec"]["volumes"]:
        if "persistentVolumeClaim" in volume:
            name = volume["persistentVolumeClaim"]["claimName"]
            yield {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}}

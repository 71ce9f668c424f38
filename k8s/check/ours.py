"""A container of ours, and what it would load.

Takes a bundle; returns each of them, with its service, or None for what runs something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from common.settings import Settings
from common.units import Address
from k8s.check.bundle import Bundle, Json, Pod
from k8s.check.staged import Outcome, load_as, stage

OURS = "redispatch"
SERVICES = ("ingest", "dispatcher", "console")
LABEL = "app.kubernetes.io/name"


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


def find(bundle: Bundle) -> Iterator[tuple[Pod, str, Ours | None]]:
    """Pod, path and container of ours; None: it says that it is ours, and runs something else."""
    for pod in bundle.pods():
        if pod.labels.get(LABEL) != OURS and not any(_is_ours(each) for _, each in pod.containers()):
            continue
        for path, container in pod.containers("containers"):
            service = _service(container) if _is_ours(container) else None
            yield pod, path, None if service is None else Ours(bundle, pod, path, container, service)


def _is_ours(container: Json) -> bool:
    image = re.sub(r"@.*|:[^/]*$", "", container.get("image", ""))
    return image.rpartition("/")[2] == OURS


def _service(container: Json) -> str | None:
    words = [*container.get("command", []), *container.get("args", [])]
    if len(words) == 3 and words[:2] == ["python", "-m"] and words[2] in ("ingest", "dispatcher"):
        return str(words[2])
    return str(words[1]) if len(words) == 2 and words[0] == OURS and words[1] in SERVICES else None

"""Renders a kustomization with `kubectl kustomize`, which asks no cluster.

Takes a directory; returns YAML. Raises Unrendered with what kubectl said, and NoKubectl where there is none.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

BROUGHT = Path(__file__).parents[2] / "build" / "kubectl"
FLOOR = (5, 0)  # of kustomize, which kubectl has had since 1.27


class NoKubectl(Exception):
    """There is none here, or only an older one."""


class Unrendered(Exception):
    """It is no kustomization, or leads to something that is not there."""


@cache
def kubectl() -> str:
    """The first that is new enough: $KUBECTL, what `make` has brought, one on PATH. Raises NoKubectl."""
    for path in (os.environ.get("KUBECTL"), str(BROUGHT), shutil.which("kubectl")):
        if path and Path(path).exists() and _version(path) >= FLOOR:
            return path
    raise NoKubectl("there is no kubectl 1.27 or newer: `make kubectl` brings one")


def _version(path: str) -> tuple[int, ...]:
    """Of the kustomize in that kubectl; () when it does not say."""
    try:
        told = subprocess.run([path, "version", "--client"], capture_output=True, text=True, check=False)
    except OSError:  # of another platform
        return ()
    version = re.search(r"Kustomize Version: v(\d+)\.(\d+)", told.stdout)
    return () if version is None else (int(version[1]), int(version[2]))


def render(directory: Path) -> str:
    """The YAML of one overlay. Raises Unrendered and NoKubectl."""
    words = [kubectl(), "kustomize", str(directory)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        told = done.stderr.replace(f"{directory.resolve()}", directory.name).strip()
        raise Unrendered(f"does not render: {told.partition('command failed')[2] or told}")
    return done.stdout

"""Our image, built and run with buildah and podman in a store of its own.

Needs root on a Debian machine and no registry: the base image is made of the machine's packages
(`base_image.py`). `python3 -m tests.support.image` builds what the tests will use; it imports the standard
library alone, so that it can begin before there is an environment.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.support import base_image

ROOT = Path(__file__).parents[2]
BASE = "docker.io/library/python:3.11-slim-bookworm"  # the Dockerfile's own
DIRECTORY = ROOT / "build" / "containers"
INPUTS = (
    "Dockerfile",
    "README.md",
    "LICENSE",
    "requirements-*.lock",
    "pyproject.toml",
    "common/**/*",
    "ingest/**/*",
    "dispatcher/**/*",
    "ops/**/*",
)
TOOLS = ("buildah", "podman", "runc", "dpkg-query", "apt-cache")
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
TITLE = "org.opencontainers.image.title=redispatch"
LIMITS = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
BASE_PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"


def inputs() -> list[Path]:
    """The files that it is made from."""
    found = {path for pattern in INPUTS for path in ROOT.glob(pattern)}
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def tag() -> str:
    """The image's name, another one when anything has changed that it is made from."""
    made = hashlib.sha256()
    for path in inputs():
        made.update(f"{path.relative_to(ROOT)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return f"localhost/redispatch:{made.hexdigest()[:16]}"


def missing() -> list[str]:
    """What a build needs and this machine has not."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


class Store:
    """A store of podman's: its images and containers lie in `directory`, and nowhere else."""

    def __init__(self, directory: Path = DIRECTORY) -> None:
        self.image = tag()
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        # Limits within the machine's, which podman's own exceed; runc, since crun refuses hybrid cgroups.
        limits = [f"{name}={_limit(kind)}" for name, kind in LIMITS.items()]
        self._conf = directory / "containers.conf"
        self._conf.write_text(
            f"[containers]\ndefault_ulimits = {json.dumps(limits)}\n"
            '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\n'
        )

    @property
    def environ(self) -> dict[str, str]:
        """What podman has to find in its environment."""
        return {"CONTAINERS_CONF": str(self._conf)}

    def words(self, tool: str, *words: str) -> list[str]:
        """A command line of `podman` or `buildah` for this store."""
        roots = ["--root", str(self._directory / "store"), "--runroot", str(self._directory / "run")]
        return [tool, *roots, *words]

    def told(self, tool: str, *words: str, check: bool = True) -> str:
        """What that command prints. Raises RuntimeError with its last words."""
        command = self.words(tool, *words)
        ended = subprocess.run(
            command, env=os.environ | self.environ, capture_output=True, text=True, check=False
        )
        if check and ended.returncode:
            raise RuntimeError(f"{' '.join(words)}: {ended.returncode}\n{ended.stderr[-4000:]}")
        return ended.stdout.strip()

    def inspect(self, kind: str, name: str) -> dict[str, Any]:
        """What podman knows of an image or a container."""
        known: dict[str, Any] = json.loads(self.told("podman", kind, "inspect", name))[0]
        return known

    def build(self) -> None:
        """The image, unless it is there; whoever comes second waits."""
        with (self._directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.has(BASE):
                self._base()
            if not self.has(self.image):
                self.told("podman", "image", "prune", "--all", "--force", "--filter", f"label={TITLE}")
                self._image()

    def has(self, image: str) -> bool:
        """Whether the image is there."""
        return bool(self.told("podman", "images", "--quiet", image))

    def end(self, *containers: str) -> None:
        """Kill and remove them, if they are there."""
        self.told("podman", "rm", "--force", "--ignore", "--time", "0", *containers)

    def _base(self) -> None:
        began, tar = time.monotonic(), self._directory / "base.tar"
        base_image.write(tar)
        self.told("podman", "import", "--change", f"ENV PATH={BASE_PATH}", str(tar), BASE)
        tar.unlink()
        self._say(BASE, began)

    def _image(self) -> None:
        began = time.monotonic()
        # The host's CA bundle while it is built: its package index may be vouched for by another authority.
        bundle = ["--volume", f"{BUNDLE}:{BUNDLE}:ro"] if BUNDLE.exists() else []
        how = ["--runtime", "runc", "--isolation", "oci", "--network", "host", "--format", "docker"]
        labels = ["--build-arg", "VERSION=test", "--build-arg", "REVISION=test"]
        self.told("buildah", "bud", *how, "--pull-never", *labels, *bundle, "--tag", self.image, str(ROOT))
        self._say(self.image, began)

    def _say(self, image: str, began: float) -> None:
        size = self.inspect("image", image)["Size"] / 1e6
        sys.stdout.write(f"{image}: {size:.0f} MB in {time.monotonic() - began:.0f} s\n")
        sys.stdout.flush()


def _limit(kind: int) -> str:
    hard = resource.getrlimit(kind)[1]
    most = 8192 if hard == resource.RLIM_INFINITY else min(hard, 8192)
    return f"{most}:{most}"


if __name__ == "__main__":
    if lacking := missing():
        sys.exit(f"missing here: {', '.join(lacking)}")
    Store().build()

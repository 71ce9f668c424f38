"""An image to build ours on where no registry is: made of this Debian machine's own packages, in seconds.

What `python:3.11-slim` has: the packages every Debian has, apt, and Python with venv and pip's wheels; a
`python` on PATH, no compiled standard library, a CA bundle of the packages alone. Takes the path of the tar.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

WANTED = ("apt", "ca-certificates", "netbase", "python3-venv", "tzdata")
INSTALLED = "${Package} ${db:Status-Status} ${Essential} ${Priority}\n"
NO_LISTS = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
LEFT_OUT = tuple(f"/usr/share/{name}/" for name in ("doc", "man", "info", "locale", "lintian"))
MERGED = ("bin", "sbin", "lib", "lib64")  # since bookworm these are links into /usr
PYTHON = f"/usr/bin/python{sys.version_info.major}"
LINKS = {f"usr/local/bin/{name}": PYTHON for name in ("python", "python3")}
COPIES = {
    "etc/passwd": "/usr/share/base-passwd/passwd.master",
    "etc/group": "/usr/share/base-passwd/group.master",
}


def packages() -> list[str]:
    """Those every Debian has, what we want, and what these need."""
    every = [line.split() for line in _told("dpkg-query", "-W", "-f", INSTALLED)]
    installed = {name for name, status, *_ in every if status == "installed"}
    roots = [name for name, _, *why in every if {"yes", "required"} & {*why}]
    without = [f"--no-{name}" for name in NO_LISTS]
    lines = _told("apt-cache", "depends", "--recurse", "--installed", *without, *roots, *WANTED)
    return sorted(installed & {*lines})


def files(names: list[str]) -> Iterator[str]:
    """The real paths of all that these packages brought, parents first."""
    real: dict[str, str] = {}
    seen = set()
    for path in sorted(set(_told("dpkg-query", "-L", *names))):
        if not path.startswith("/") or path.startswith(LEFT_OUT):
            continue
        parent, _, name = path.rpartition("/")
        if parent not in real:
            real[parent] = os.path.realpath(parent or "/").rstrip("/")
        path = f"{real[parent]}/{name}"
        if path not in seen and os.path.lexists(path) and path.strip("/") not in MERGED:
            seen.add(path)
            yield path


def write(to: Path) -> None:
    """The tar of a root directory."""
    with tarfile.open(to, "w") as tar:
        for path in files(packages()):
            tar.add(path, path.lstrip("/"), recursive=False, filter=_roots)
        for name in MERGED:
            _link(tar, name, f"usr/{name}")
        for name, target in LINKS.items():
            _link(tar, name, target)
        for name, source in COPIES.items():
            _file(tar, name, Path(source).read_bytes())
        _file(tar, "etc/ssl/certs/ca-certificates.crt", _authorities())
        _file(tar, "etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n")
        _file(tar, "etc/pip.conf", _pip_conf().encode())


def _roots(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uname = entry.gname = ""
    return entry


def _authorities() -> bytes:
    return b"".join(path.read_bytes() for path in sorted(Path("/usr/share/ca-certificates").rglob("*.crt")))


def _pip_conf() -> str:
    """The system's CA bundle, which a build may mount over, and this machine's index, if it has its own."""
    lines = ["[global]", "cert = /etc/ssl/certs/ca-certificates.crt"]
    for line in _told(sys.executable, "-m", "pip", "config", "list"):
        name, _, value = line.partition("=")
        if name.partition(".")[2] in ("index-url", "trusted-host"):
            lines.append(f"{name.partition('.')[2]} = {value.strip(chr(39))}")
    return "\n".join(lines) + "\n"


def _link(tar: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
    tar.addfile(entry)


def _file(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _told(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


if __name__ == "__main__":
    write(Path(sys.argv[1]))

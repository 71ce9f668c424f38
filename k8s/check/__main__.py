"""`python -m k8s.check [PATH ...]`: an overlay's directory, a directory of overlays, or a file of rendered
YAML (- is stdin).

Without a path: all overlays of this repository. Prints a line per finding; exit code 1 when there is one, 2
when nothing could be looked at.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from k8s.check.bundle import parse
from k8s.check.render import NoKubectl, Unrendered, render
from k8s.check.run import run

OVERLAYS = Path(__file__).parents[1] / "overlays"
KUSTOMIZATION = "kustomization.yaml"


def main(words: list[str] | None = None) -> int:
    """Look at everything that is named, and return the exit code."""
    usage = argparse.ArgumentParser(
        prog="python -m k8s.check", description="What is wrong with these manifests."
    )
    usage.add_argument("paths", nargs="*", type=Path, default=[OVERLAYS], metavar="PATH")
    wrong = False
    try:
        for path in (each for told in usage.parse_args(words).paths for each in _bundles(told)):
            for line in _look(path):
                wrong = True
                sys.stdout.write(f"{path}: {line}\n")
    except (NoKubectl, OSError) as fault:
        sys.stderr.write(f"{fault}\n")
        return 2
    return int(wrong)


def _bundles(path: Path) -> list[Path]:
    """Files, and directories with a kustomization: the path itself, or what lies below it."""
    if not path.is_dir() or (path / KUSTOMIZATION).exists():
        return [path]
    found = sorted(file.parent for file in path.rglob(KUSTOMIZATION))
    if not found:
        raise FileNotFoundError(f"there is no {KUSTOMIZATION} in {path}")
    return [each for each in found if "kind: Component" not in (each / KUSTOMIZATION).read_text("utf-8")]


def _look(path: Path) -> Iterator[str]:
    try:
        if path.is_dir():
            text = render(path)
        else:
            text = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
        yield from map(str, run(parse(text)))
    except (ValueError, Unrendered) as fault:
        yield f"{fault} [render]"


if __name__ == "__main__":
    sys.exit(main())

"""Writes `grafana/dashboards/`: `python grafana/generate.py`, `--check` to compare only."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # run as a script, from anywhere

# ruff: noqa: E402  these are found through the line above
from grafana import destination, ingest, overview, server
from grafana.panels import Dashboard, encode

DASHBOARDS: dict[str, Dashboard] = {
    "overview": overview.DASHBOARD,
    "destination": destination.DASHBOARD,
    "ingest": ingest.DASHBOARD,
    "redis": server.DASHBOARD,
}


def file(name: str) -> Path:
    """Where a dashboard's JSON is."""
    return HERE / "dashboards" / f"{name}.json"


def stale() -> list[str]:
    """The dashboards whose file differs from what the code says."""
    return [
        name
        for name, dashboard in DASHBOARDS.items()
        if not file(name).exists() or file(name).read_text("utf-8") != encode(dashboard)
    ]


def main(arguments: list[str]) -> int:
    """Write what is stale; with `--check` only name it, exit code 1."""
    names = stale()
    for name in names:
        if arguments != ["--check"]:
            file(name).write_text(encode(DASHBOARDS[name]), encoding="utf-8")
        sys.stdout.write(f"{name}.json {'is stale' if arguments == ['--check'] else 'written'}\n")
    return 1 if names and arguments == ["--check"] else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""Writes the PrometheusRule from the rules in grafana/: `python k8s/generate.py`, `--check` to compare
only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

K8S = Path(__file__).resolve().parent
SOURCE = K8S.parent / "grafana" / "prometheus" / "rules.yaml"
RULE = K8S / "components" / "monitoring" / "prometheus-rule.yaml"
HEAD = "# Drawn from grafana/prometheus/rules.yaml by k8s/generate.py; a test keeps it current.\n"


def prometheus_rule() -> str:
    """The file's text."""
    rules = yaml.safe_load(SOURCE.read_text("utf-8"))
    made: dict[str, Any] = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "redispatch", "labels": {"app.kubernetes.io/name": "redispatch"}},
        "spec": rules,
    }
    return HEAD + yaml.safe_dump(made, sort_keys=False, width=110, allow_unicode=True)


def stale() -> bool:
    """Whether the file is another than it would be now."""
    return not RULE.exists() or RULE.read_text("utf-8") != prometheus_rule()


def main(words: list[str]) -> int:
    """Write, or say that it should be; the exit code."""
    if "--check" in words:
        sys.stdout.write(f"{RULE.name} is stale: python k8s/generate.py\n" if stale() else "")
        return int(stale())
    RULE.write_text(prometheus_rule(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

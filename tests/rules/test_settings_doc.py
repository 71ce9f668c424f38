"""The documents that are drawn from the code are current, and the examples are valid."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from common.config import ConfigError, load
from dispatcher.destinations import kinds
from ops.check import warnings

ROOT = Path(__file__).resolve().parents[2]
SECRET = "whsec_" + "c2VjcmV0" * 4
SLACK = "https://hooks.slack.example/services/T0/B0/0123456789"


def test_documents_are_current() -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "docs/generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, f"{run.stdout}{run.stderr}: run `python docs/generate.py`"


def test_the_repositorys_configuration_needs_no_environment() -> None:
    settings = load(str(ROOT / "redispatch.yaml"), {}, kinds)
    assert list(warnings(settings)) == []
    assert [destination.name for destination in settings.destinations] == ["terminal", "receiver"]


def test_the_example_needs_its_variables() -> None:
    with pytest.raises(ConfigError) as caught:
        load(str(ROOT / "docs/example.yaml"), {}, kinds)
    assert [fault.message for fault in caught.value.faults] == [
        "the environment variable AGENTS_TOKEN_SHA256 is not set",
        "the environment variable PAGER_SECRET is not set",
        "the environment variable ARCHIVE_SECRET is not set",
        "the environment variable SLACK_URL is not set",
    ]


def test_the_example_is_valid() -> None:
    settings = load(
        str(ROOT / "docs/example.yaml"),
        {
            "AGENTS_TOKEN_SHA256": "5" * 64,
            "PAGER_SECRET": SECRET,
            "ARCHIVE_SECRET": SECRET,
            "SLACK_URL": SLACK,
        },
        kinds,
    )
    assert list(warnings(settings)) == []

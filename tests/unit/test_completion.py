"""Completion by the shells' own protocol: silent when it can't know."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner

from ops.cli import COMMANDS, main
from ops.completion import PROGRAM, SHELLS, VARIABLE

CONFIG = (
    "destinations: [{name: pager, type: webhook, url: '${NOT_SET}'}, {name: chat, type: discard}, {}, 7]\n"
)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "redispatch.yaml"
    file.write_text(CONFIG)
    monkeypatch.setenv("REDISPATCH_CONFIG", str(file))
    return file


def completed(*words: str) -> list[str]:
    """What there is for the last word."""
    shell = get_completion_class("bash")
    assert shell is not None
    asked = shell(main, {}, PROGRAM, VARIABLE)
    return [item.value for item in asked.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([""], list(COMMANDS)),
        (["re"], ["receive", "resume", "retire"]),
        (["dead", "re"], ["replay"]),
        (["dead", "list", "--reason", "max"], ["max_deliveries", "max_age"]),
        (["dead", "replay", "-d", ""], ["pager", "chat"]),
        (["dead", "discard", "--destination", "ch"], ["chat"]),
        (["pause", "p"], ["pager"]),
        (["resume", ""], ["pager", "chat"]),
        (["ledger", "accept", "c"], ["chat"]),
        (["retire", ""], []),
        (["pause", "--config", "nowhere.yaml", ""], []),
        (["ledger", "--config", "nowhere.yaml", "accept", ""], []),
        (["completion", ""], list(SHELLS)),
    ],
)
def test_words(config: Path, words: list[str], expected: list[str]) -> None:
    assert completed(*words) == expected


@pytest.mark.parametrize(
    "content", [b"{", b"\xff\xfe", b"destinations: 7", b"- 1", b"", b"destinations: [[]]"]
)
def test_a_broken_file_completes_nothing(config: Path, content: bytes) -> None:
    config.write_bytes(content)
    assert completed("pause", "") == []


def test_the_default_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDISPATCH_CONFIG")
    monkeypatch.chdir(config.parent)
    assert completed("pause", "") == ["pager", "chat"]


@pytest.mark.parametrize("shell", SHELLS)
def test_what_a_shell_is_told_to_run(shell: str) -> None:
    said = CliRunner().invoke(main, ["completion", shell])
    assert said.exit_code == 0
    assert f"{VARIABLE}={shell}_complete" in said.output


def test_bash(config: Path) -> None:
    """The real protocol: bash sources what is printed, and calls it as it does when Tab is pressed."""
    script = (
        'eval "$(redispatch completion bash)"; complete -p redispatch;'
        "COMP_WORDS=(redispatch dead list -d p); COMP_CWORD=4;"
        '_redispatch_completion redispatch; echo "${COMPREPLY[@]}"'
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": path, "REDISPATCH_CONFIG": str(config)},
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "pager"
    assert "_redispatch_completion" in done.stdout.splitlines()[0]

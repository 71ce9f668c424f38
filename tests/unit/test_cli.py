"""The `redispatch` command: its table, and one clear line for each mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ops.cli import COMMANDS, main
from ops.post import base_url
from tests.support.servers import free_port


@pytest.fixture
def run() -> CliRunner:
    return CliRunner(env={"REDISPATCH_CONFIG": None, "REDISPATCH_REDIS_URL": None})


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(run: CliRunner, command: str) -> None:
    result = run.invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert result.output.startswith("Usage:")


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("receive", "completion")])
def test_each_command_takes_a_configuration(command: str) -> None:
    found = main.get_command(click.Context(main), command)
    for each in list(found.commands.values()) if isinstance(found, click.Group) else [found]:
        assert each is not None
        assert "config" in [param.name for param in each.params]


def test_version(run: CliRunner) -> None:
    assert run.invoke(main, ["--version"]).output.startswith("redispatch, version 0.")


def test_the_table_alone_imports_nothing_heavy() -> None:
    program = (
        "import sys, ops.cli; heavy = {'aiohttp', 'redis', 'yaml', 'msgspec', 'asyncio'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fly"], "No such command 'fly'"),
        (["up", "--config", "nowhere.yaml"], "nowhere.yaml: can't be read"),
        (["check", "--config", "nowhere.yaml"], "nowhere.yaml: can't be read"),
        (["send", "--config", "nowhere.yaml"], "nowhere.yaml: can't be read"),
        (["send", "--url", "ftp://x"], "no http:// or https:// address"),
        (["send", "--url", "http://127.0.0.1:1"], "can't be reached (connection refused)"),
        (["receive", "--listen", "8099"], "expected address:port"),
        (["receive", "--delay", "long"], "expected a duration"),
        (["receive", "--secret", "whsec_?"], "not base64"),
    ],
)
def test_a_mistake_is_one_line(run: CliRunner, words: list[str], expected: str) -> None:
    result = run.invoke(main, words)
    assert result.exit_code not in (0, None)
    assert expected in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "url",
    ["redis://10.0.0.1:6379/0", "redis://:word@127.0.0.1:6379/0", "unix:///tmp/r.sock", "rediss://127.0.0.1"],
)
def test_up_starts_no_server_elsewhere(run: CliRunner, tmp_path: Path, url: str) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("destinations: [{name: d, type: discard}]\nroutes: [{to: [d]}]\n")
    result = run.invoke(
        main,
        ["up", "--config", str(config), "--data", str(tmp_path)],
        env={"REDISPATCH_REDIS_URL": url},
    )
    assert result.exit_code == 1
    assert "--redis-url" in result.output
    assert "word" not in result.output


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("0.0.0.0:80", "http://127.0.0.1:80"),
        (":8080", "http://127.0.0.1:8080"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("[::]:8080", "http://[::1]:8080"),
    ],
)
def test_where_a_service_is_reached(listen: str, url: str) -> None:
    assert base_url(listen) == url


def test_exit_codes(run: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run.invoke(main, ["status", "--config", "nowhere.yaml"]).exit_code == 1
    assert run.invoke(main, ["status", "--watch", "please"]).exit_code == 2
    assert run.invoke(main, ["dead", "replay", "--rate", "-1"]).exit_code == 2

    def interrupted(config: str | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ops.options.settings", interrupted)
    result = run.invoke(main, ["dead", "list"])
    assert (result.exit_code, result.output) == (130, "interrupted\n")


def test_check_as_json(run: CliRunner, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    words = ["check", "--json", "--config", str(config)]
    config.write_text("destinations: [{name: d, type: discard, no: 1}]\nroutes: [{to: [e]}]\n")
    told = json.loads(run.invoke(main, words).output)
    assert told["valid"] is False
    assert {fault["message"] for fault in told["faults"]} == {
        "unknown field",
        "there is no destination e",
    } or told
    assert all(str(config.name) in fault["place"] for fault in told["faults"])
    config.write_text(
        "destinations: [{name: d, type: discard}, {name: e, type: discard}]\nroutes: [{to: [d]}]\n"
    )
    result = run.invoke(main, words, env={"REDISPATCH_REDIS_URL": f"redis://127.0.0.1:{free_port()}"})
    told = json.loads(result.output)
    assert (result.exit_code, told["valid"], told["faults"]) == (0, True, [])
    assert [warning["message"] for warning in told["warnings"]] == ["no route leads to e"]


def test_free_ports_are_free() -> None:
    assert free_port() != 0

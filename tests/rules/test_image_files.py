"""The Dockerfile and what it takes: linted, locked like everything else, and all of it is let in."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from common.config import load
from tests.rules.pages import ROOT
from tests.rules.test_decisions import names
from tests.support import image

DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
LOCKS = ("requirements-image.lock", "requirements-build.lock")
EXTRAS = ("agent", "apprise", "otel")


def pinned(file: str) -> dict[str, str]:
    """What a lock says of each package: version and hashes."""
    blocks = re.split(r"\n(?=\S)", (ROOT / file).read_text("utf-8").strip())
    return {block.partition("==")[0]: block for block in blocks}


def settings(environ: dict[str, str], tmp_path: Path) -> object:
    """What the services take from the environment."""
    file = tmp_path / "redispatch.yaml"
    file.write_text("ingest: {allow_anonymous: true}\n")
    return load(str(file), environ)


def test_the_linter_is_content() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    run = subprocess.run([linter, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("file", LOCKS)
def test_it_has_what_is_tested(file: str) -> None:
    everything = pinned("requirements.lock")
    assert {name: block for name, block in pinned(file).items() if everything.get(name) != block} == {}


def test_it_has_what_runs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*project["dependencies"]]
    for extra in EXTRAS:
        wanted += project["optional-dependencies"][extra]
    assert {re.sub(r"[._]", "-", name.lower()) for name in names(wanted)} <= pinned(LOCKS[0]).keys()
    assert {"pytest", "mypy", "hatchling"} & pinned(LOCKS[0]).keys() == set()


def copied() -> list[str]:
    """What the Dockerfile takes of the repository."""
    lines = [shlex.split(line)[1:-1] for line in DOCKERFILE.splitlines() if line.startswith("COPY ")]
    return [name for line in lines if not line[0].startswith("--from") for name in line]


def test_what_it_takes_is_there_and_is_let_in() -> None:
    let_in = [
        line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")
    ]
    assert sorted(copied()) == sorted(let_in)
    assert [name for name in copied() if not (ROOT / name).exists()] == []
    hashed = [str(path.relative_to(ROOT)) for path in image.inputs()]
    assert [name for name in copied() if not any(fnmatch(path, f"{name}*") for path in hashed)] == []


def test_its_base_is_the_one_that_the_tests_make() -> None:
    assert f"ARG BASE={image.BASE}\n" in DOCKERFILE
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["${BASE}", "${BASE}"]


def test_its_variables_are_settings(tmp_path: Path) -> None:
    variables = dict(re.findall(r"(REDISPATCH_\w+)=(\S+)", DOCKERFILE))
    assert variables.pop("REDISPATCH_CONFIG").startswith("/etc/")
    assert variables.pop("REDISPATCH_LOG") == "json"
    assert settings(variables, tmp_path)  # an unknown one is refused
    ports = {value.rpartition(":")[2] for value in variables.values()}
    exposed = re.search(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE)
    assert exposed
    assert set(exposed[1].split()) == ports


@pytest.mark.parametrize("service", ["ingest", "dispatcher"])
def test_a_signal_is_heard_from_the_first_import_on(service: str) -> None:
    tree = ast.parse((ROOT / service / "__main__.py").read_text("utf-8"))
    imports = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    ours = [line for line in imports if re.match(r"(import|from) (common|ingest|dispatcher|ops)\b", line)]
    assert ours[0] == "import common.early"

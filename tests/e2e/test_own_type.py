"""A type of destination that a package adds, as the documents tell it: installed, checked, delivered with."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.test_up import IS_UP, LONG, Place
from tests.rules.pages import DOCS, ROOT
from tests.support.fleet import eventually
from tests.support.processes import Processes

pytestmark = pytest.mark.timeout(2 * LONG)
PAGE = (DOCS / "destinations.md").read_text("utf-8").partition("\n## A type of your own\n")[2]


def block(language: str) -> str:
    """The one code block in that language."""
    (text,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return str(text)


def test_it_takes_ten_lines() -> None:
    lines = [line for line in block("python").splitlines() if line.strip()]
    assert len([line for line in lines if not line.startswith("from ")]) <= 10


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package of the page is, installed from its two files without a network."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("target")
    (source / "redispatch_file.py").write_text(block("python"), "utf-8")
    (source / "pyproject.toml").write_text(block("toml"), "utf-8")
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(target)]
    command = [sys.executable, "-m", "pip", "install", *options, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [each.name for each in target.glob("*.dist-info")] == ["redispatch_file-1.0.dist-info"]
    return target


async def test_an_alert_arrives_with_it(installed: Path, processes: Processes) -> None:
    environ = {"PYTHONPATH": f"{ROOT}:{installed}"}
    place = Place(processes)
    content = yaml.safe_load(place.config().read_text())
    config = processes.config({**content, **yaml.safe_load(block("yaml")), "routes": [{"to": ["diary"]}]})
    checked = await processes.redispatch("check", config=config, env=environ)
    assert await checked.wait_exit() == 0
    up = await processes.start(
        sys.executable, "-m", "ops", *place.words("--config", str(config)), env=environ
    )
    await up.wait_line(IS_UP, LONG)
    words = ("send", "--host", "web-1", "--name", "disk-full")
    sent = await processes.redispatch(*words, config=config, env=environ)
    assert await sent.wait_exit() == 0
    diary = processes.directory / "diary.txt"

    def written() -> bool:
        return diary.exists() and diary.read_text() == "firing disk-full on web-1\n"

    await eventually(lambda: asyncio.to_thread(written), "a line in the file")
    assert await up.stop() == 0
    up.assert_no_traceback()

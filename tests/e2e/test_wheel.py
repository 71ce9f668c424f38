"""The wheel, unpacked elsewhere, does what the repository does: its Lua files are in it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.e2e.test_up import IS_UP, LONG, Place
from tests.support.processes import ROOT, Processes

pytestmark = pytest.mark.timeout(2 * LONG)
PACKAGES = ("common", "ingest", "dispatcher", "ops")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without a network, from what the environment has."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return next(out.glob("*.whl"))


def test_it_holds_all_of_it_and_nothing_else(wheel: Path) -> None:
    files = {
        str(file.relative_to(ROOT))
        for package in PACKAGES
        for file in (ROOT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == files


async def test_an_alert_arrives_with_it(wheel: Path, processes: Processes, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    with zipfile.ZipFile(wheel) as content:
        content.extractall(elsewhere)
    environ = {"PYTHONPATH": str(elsewhere)}
    place = Place(processes)
    config = place.config()
    program = [sys.executable, "-P", "-m", "ops"]
    up = await processes.start(*program, *place.words("--config", str(config)), env=environ)
    await up.wait_line(IS_UP, LONG)
    send = [*program, "send", "--config", str(config), "--host", "web-1", "--name", "disk-full"]
    sent = await processes.start(*send, "--status", "firing", env=environ)
    assert await sent.wait_exit() == 0
    assert sent.out[0].startswith('201 {"key":"web-1:disk-full:')
    await up.wait_line(r"firing disk-full on web-1, \S+ \(signature right\)")
    where = await processes.start(
        sys.executable, "-P", "-c", "import ingest; print(ingest.__file__)", env=environ
    )
    assert await where.wait_line("elsewhere")
    assert await up.stop() == 0
    up.assert_no_traceback()


async def test_a_refused_alert_is_one_line(processes: Processes) -> None:
    place = Place(processes)
    config = place.config()
    up = await place.up()
    sent = await processes.redispatch("send", "--host", "", config=config)
    assert await sent.wait_exit() == 1
    assert sent.err[0].startswith(f"Error: http://127.0.0.1:{place.ingest}/v1/alerts answers 400: ")
    sent.assert_no_traceback()
    assert await up.stop() == 0

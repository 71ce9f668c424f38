"""`make release-check`: what would be published, looked at and used. It asks a package index.

Sdist and wheel are built, the latter from the former; each is installed into an empty environment with the
newest packages that it admits, and does its job there: an alert comes in and is delivered.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata

from common import __version__
from tests.e2e.test_up import Place
from tests.support.processes import ROOT, Processes

PATIENCE = 600.0  # seconds for the package index
LEFT_OUT = {".gitignore"}  # what is tracked and no part of the sources that are published

pytestmark = pytest.mark.timeout(PATIENCE + 60)


def run(*words: str | Path) -> str:
    """What it prints; fails with it."""
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="session")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with both."""
    directory = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", directory, ROOT)
    return directory


@pytest.fixture
def wheel(out: Path) -> Path:
    """The one."""
    [path] = out.glob("*.whl")
    return path


@pytest.fixture
def sdist(out: Path) -> Path:
    """The other."""
    [path] = out.glob("*.tar.gz")
    return path


def member(archive: Path, ending: str) -> bytes:
    """The file of an archive that ends so, outermost first."""
    if archive.suffix == ".whl":
        held = zipfile.ZipFile(archive)
        return held.read(next(name for name in held.namelist() if name.endswith(ending)))
    with tarfile.open(archive) as tar:
        found = tar.extractfile(min((n for n in tar.getnames() if n.endswith(ending)), key=len))
        assert found
        return found.read()


def test_what_they_say_of_themselves(wheel: Path, sdist: Path) -> None:
    for archive, ending in ((wheel, ".dist-info/METADATA"), (sdist, "PKG-INFO")):
        told = Metadata.from_email(
            member(archive, ending), validate=True
        )  # raises what an index would refuse
        assert (told.name, str(told.version)) == ("redispatch", __version__)
        assert told.license_expression == "Apache-2.0"
        assert told.license_files == ["LICENSE"]
        assert told.description_content_type == "text/markdown"
        assert told.description == (ROOT / "README.md").read_text("utf-8")
        assert str(told.requires_python) == ">=3.11"
    assert b"redispatch = ops.cli:main" in member(wheel, "entry_points.txt")


def test_the_sources_are_all_there(sdist: Path) -> None:
    tracked = {name for name in run("git", "-C", ROOT, "ls-files", "-z").split("\0") if name}
    with tarfile.open(sdist) as tar:
        held = {name.partition("/")[2] for name in tar.getnames()}
    assert tracked - held - LEFT_OUT == set()
    assert {name for name in held - tracked if name not in {"PKG-INFO"}} == set()


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
async def test_it_does_its_job_where_nothing_else_is(
    kind: str, request: pytest.FixtureRequest, processes: Processes, tmp_path: Path
) -> None:
    archive: Path = request.getfixturevalue(kind)
    home = tmp_path / "environment"
    run(sys.executable, "-m", "venv", home)
    run(home / "bin/pip", "install", "--quiet", f"{archive}[agent,embedded]")
    run(home / "bin/pip", "check")
    program = str(home / "bin/redispatch")
    nothing_of_ours = {"PYTHONPATH": "", "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
    version = await processes.start(program, "--version", env=nothing_of_ours)
    assert await version.wait_line(rf"redispatch, version {__version__}$")
    place = Place(processes)
    up = await processes.start(program, *place.words("--config", str(place.config())), env=nothing_of_ours)
    await up.wait_line("^Ctrl-C stops it", 60)
    url = f"http://127.0.0.1:{place.ingest}"
    sent = await processes.start(
        program, "send", "--url", url, "--host", "web-1", "--name", "disk-full", env=nothing_of_ours
    )
    assert await sent.wait_exit() == 0
    await up.wait_line(r"firing disk-full on web-1, \S+ \(signature right\)")
    assert await up.stop() == 0
    processes.assert_no_traceback()

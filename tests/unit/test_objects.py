"""What is put comes back as it was, or it is said what is wrong; a place that is away lacks nothing."""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from common.alert import Malformed, Status, TooNew, decode, encode
from common.directory import Directory
from common.objects import Objects, place
from common.reference import Reference, refer
from common.reference import decode as decode_reference
from common.reference import encode as encode_reference
from common.stored import Away, Broken, Missing
from tests.support.deliveries import alert

LARGE = alert(summary="x" * 100_000)
STORED = encode(LARGE)


@pytest.fixture(params=["directory", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place of each kind, empty."""
    if request.param == "directory":
        return str(tmp_path / "not" / "there")
    return f"memory://{secrets.token_hex(8)}"


@pytest.fixture
def objects(url: str) -> Objects:
    return Objects(url, "redispatch")


async def names(objects: Objects) -> list[tuple[str, str]]:
    return sorted([(where, name) async for page in objects.pages() for where, name, _ in page])


async def test_there_and_back(objects: Objects) -> None:
    assert await names(objects) == []
    reference = await objects.put("pager", LARGE, STORED)
    assert (reference.size, reference.incident, reference.since) == (len(STORED), LARGE.incident, LARGE.since)
    assert await objects.get("pager", reference) == STORED
    assert await names(objects) == [("pager", reference.object)]
    await objects.delete("pager", [reference.object, "0" * 32])
    await objects.delete("pager", [reference.object])
    assert await names(objects) == []
    with pytest.raises(Missing):
        await objects.get("pager", reference)


async def test_each_has_a_name_of_its_own(objects: Objects) -> None:
    made = [await objects.put(where, LARGE, STORED) for where in ("pager", "pager", "chat")]
    assert len({reference.object for reference in made}) == 3
    with pytest.raises(Broken):
        await objects.get("chat", made[0])


async def test_namespaces_do_not_see_each_other(url: str, objects: Objects) -> None:
    await objects.put("pager", LARGE, STORED)
    assert await names(Objects(url, "other")) == []


@pytest.mark.parametrize("content", [STORED[:-1], STORED + b" ", STORED[:-1] + b"?", b""])
async def test_what_was_changed_is_seen(url: str, objects: Objects, content: bytes) -> None:
    reference = await objects.put("pager", LARGE, STORED)
    path = f"redispatch/pager/{reference.object}"
    await objects.delete("pager", [reference.object])
    await place(url).put(path, content)
    with pytest.raises(Broken):
        await objects.get("pager", reference)


async def test_what_is_not_ours_is_not_listed(url: str, objects: Objects) -> None:
    for path in ("pager/notes.txt", f"pager/deeper/{'0' * 32}", "0" * 32, f"pager/{'0' * 33}"):
        await place(url).put(f"redispatch/{path}", b"")
    assert await names(objects) == []


async def test_many_are_listed_in_pages(url: str, objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.directory.os.fsync", lambda _: None)  # whatever the disk is busy with
    wanted = [f"{n:032x}" for n in range(1100)]
    for name in wanted:
        await place(url).put(f"redispatch/pager/{name}", b"")
    pages = [page async for page in objects.pages()]
    assert sorted(name for page in pages for _, name, _ in page) == wanted
    assert max(map(len, pages)) <= 1000
    await objects.delete("pager", wanted)
    assert await names(objects) == []


# A directory


async def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        root = tmp_path / "a" / "b"
        await Objects(str(root), "n").put("pager", LARGE, STORED)
    finally:
        os.umask(before)
    made = [root.parent, *root.parent.rglob("*")]
    assert {stat.S_IMODE(each.stat().st_mode) for each in made if each.is_dir()} == {0o700}
    assert [stat.S_IMODE(each.stat().st_mode) for each in made if each.is_file()] == [0o600]
    assert len(made) == 5


async def test_a_directory_that_is_not_mounted_is_away(tmp_path: Path) -> None:
    objects = Objects(str(tmp_path / "mount"), "n")
    reference = await objects.put("pager", LARGE, STORED)
    (tmp_path / "mount").rename(tmp_path / "elsewhere")
    with pytest.raises(Away, match="No such file"):
        await objects.get("pager", reference)
    (tmp_path / "elsewhere").rename(tmp_path / "mount")
    assert await objects.get("pager", reference) == STORED


async def test_a_path_that_is_none_is_away(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    objects = Objects(str(tmp_path / "file"), "n")
    with pytest.raises(Away):
        await objects.put("pager", LARGE, STORED)
    with pytest.raises(Away):
        await objects.get("pager", refer(LARGE, STORED))


async def test_a_full_disk_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = Objects(str(tmp_path), "n")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("common.directory.os.fsync", full)
    (tmp_path / "n" / "pager").mkdir(parents=True)
    with pytest.raises(Away, match="No space left"):
        await objects.put("pager", LARGE, STORED)
    assert await names(objects) == []


async def test_a_place_that_hangs_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    over = asyncio.Event()

    async def hang(self: Directory, path: str, most: int) -> bytes:
        await over.wait()
        return b""

    monkeypatch.setattr(Directory, "get", hang)
    with pytest.raises(Away, match=r"no answer within 0\.01 s"):
        await Objects(str(tmp_path), "n", patience=0.01).get("pager", refer(LARGE, STORED))


def test_nothing_is_made_before_it_is_needed(tmp_path: Path) -> None:
    objects = Objects(str(tmp_path / "objects"), "n")
    assert objects.untouched
    assert list(tmp_path.iterdir()) == []


def test_a_directory_needs_no_client_of_buckets() -> None:
    """Which takes longer to import than all the rest of a service."""
    program = """if True:
        import asyncio, sys
        import dispatcher.serve, ingest.serve, ops.cli
        from common.objects import Objects, place
        assert place("/nowhere").untouched
        print(*(name for name in sys.modules if "obstore" in name or name == "common.bucket"))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# A reference


def test_a_reference_stands_for_its_alert() -> None:
    over = replace(LARGE, status=Status.RESOLVED, ends_at=LARGE.timestamp + 5)
    reference = refer(over, encode(over))
    again = decode_reference(encode_reference(reference), reference.object.encode())
    assert again == reference
    told = again.stand_in
    assert (told.incident, told.status, told.since) == (over.incident, over.status, over.since)


def reference(**fields: object) -> bytes:
    """One as it is stored, with something else in it."""
    plain: Reference = refer(LARGE, STORED)
    return encode_reference({name: getattr(plain, name) for name in plain.__struct_fields__} | fields)


NAME = "0" * 32


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        STORED,
        reference(),  # of another object
        reference(object="../../etc/passwd"),
        reference(object=NAME.upper()[:31] + "G"),
        reference(object=NAME, size=-1),
        reference(object=NAME, size="1"),
        reference(object=NAME, status="gone"),
    ],
)
def test_a_reference_that_is_none(stored: bytes) -> None:
    with pytest.raises(Malformed):
        decode_reference(stored, NAME.encode())


def test_a_name_that_is_none() -> None:
    with pytest.raises(Malformed):
        decode_reference(reference(object="../x"), b"../x")


@pytest.mark.parametrize("stored", [reference(object=NAME, v=3), b'{"v":3}'])
def test_a_reference_of_a_newer_version_is_for_others(stored: bytes) -> None:
    with pytest.raises(TooNew):
        decode_reference(stored, NAME.encode())


def test_who_knows_no_references_hands_them_back() -> None:
    with pytest.raises(TooNew):
        decode(reference())


# A bucket


async def test_a_bucket_that_can_not_be_opened_is_away() -> None:
    with pytest.raises(Away):
        await Objects("az://container", "n").put("pager", LARGE, STORED)  # whose account is not known


def test_what_a_url_has_behind_its_path_is_not_told() -> None:
    from common.bucket import _plain

    told = _plain(
        OSError('error for url (https://x.example/c/n?sv=1&sig=hunter2): "gone"\n\nDebug source:\n?sig=x')
    )
    assert told == 'error for url (https://x.example/c/n?***): "gone"'

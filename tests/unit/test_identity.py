"""Incident and key: what each is made of, and that no two different things share one."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from common.bounded import bounded
from ingest import identity

MINUTE = 60_000
AT = 1_772_439_277_000


def test_escape_keeps_only_what_is_safe_in_a_path_and_a_header() -> None:
    assert identity.escape("web-1_a") == "web-1_a"
    assert identity.escape("web.1:~ /ö") == "web~2e1~3a~7e~20~2f~c3~b6"


@given(st.text(), st.text())
def test_escape_never_makes_two_texts_one(one: str, other: str) -> None:
    assert (identity.escape(one) == identity.escape(other)) == (one == other)
    assert re.fullmatch(r"[A-Za-z0-9_~-]*", identity.escape(one))


def test_incident_is_host_and_name_and_a_hash_of_labels_when_there_are_any() -> None:
    assert identity.incident("web-1", "disk.full", {}) == "web-1:disk~2efull"
    labelled = identity.incident("web-1", "disk-full", {"mount": "/var"})
    assert re.fullmatch(r"web-1:disk-full:[0-9a-f]{16}", labelled)


def test_other_labels_are_another_incident_in_whatever_order_they_come() -> None:
    var, home = ({"mount": mount, "dc": "a"} for mount in ("/var", "/home"))
    assert identity.incident("h", "n", var) != identity.incident("h", "n", home)
    assert identity.incident("h", "n", var) == identity.incident("h", "n", {"dc": "a", "mount": "/var"})


def test_label_hash_tells_names_from_values() -> None:
    assert identity.incident("h", "n", {"a": "b", "c": "d"}) != identity.incident(
        "h", "n", {"a": 'b","c":"d'}
    )


def test_by_chooses_the_labels_that_count() -> None:
    labels = {"mount": "/var", "pid": "17"}
    assert identity.incident("h", "n", labels, ["mount"]) == identity.incident("h", "n", {"mount": "/var"})
    assert identity.incident("h", "n", labels, []) == "h:n"
    assert identity.incident("h", "n", labels, ["absent"]) == "h:n"


def test_window_key_takes_the_events_own_window() -> None:
    assert identity.window_key("h:n", AT, MINUTE, None, 0, False) == f"h:n:{AT // MINUTE}"
    assert identity.window_key("h:n", AT, MINUTE, "critical", 0, False).endswith(":critical")
    assert identity.window_key("h:n", AT, MINUTE, "critical", 2, True).endswith(":critical:2:resolved")


def test_a_key_is_never_taken_for_one_of_another_kind() -> None:
    keys = [
        identity.window_key("h:n", AT, MINUTE, "resolved", 0, False),
        identity.window_key("h:n", AT, MINUTE, None, 0, True),
        identity.window_key("h:n", AT, MINUTE, "1", 0, False),
        identity.window_key("h:n", AT, MINUTE, None, 1, False),
        identity.window_key(identity.incident("id", "anonymous", {}), 5 * MINUTE, MINUTE, None, 0, False),
        identity.idempotency_key("anonymous", "5", None, None, False),
    ]
    assert len(set(keys)) == len(keys)


def test_episode_key_is_the_start_whatever_else_the_event_says() -> None:
    assert identity.episode_key("h:n", AT, False) == f"h:n:{AT}"
    assert identity.episode_key("h:n", AT, True) == f"h:n:{AT}:resolved"


def test_a_fingerprint_is_alertmanagers() -> None:
    labels = {"alertname": "QueueDeep", "cluster": "test", "instance": "127.0.0.1:59683", "job": "app"}
    assert identity.fingerprint({**labels, "queue": "emails", "severity": "warning"}) == "0773ea086aecac3d"
    assert identity.fingerprint({}) == "cbf29ce484222325"


@given(st.dictionaries(st.text(), st.text(), max_size=5), st.text(min_size=1))
def test_every_label_counts_for_a_fingerprint(labels: dict[str, str], more: str) -> None:
    for size in (1, 10_000):
        grown = {**labels, "long": "x" * size}
        assert identity.fingerprint(grown) == identity.fingerprint(dict(reversed(grown.items())))
        assert identity.fingerprint(grown) != identity.fingerprint({**grown, "long": more + "x" * size})


def test_keys_of_what_is_repeated_and_of_events() -> None:
    assert identity.repeat_key("am:0773ea086aecac3d", AT, 2) == f"am:0773ea086aecac3d:{AT}:r2"
    assert identity.event_incident("/a", "b") == "ce:~2fa:b"
    assert identity.event_key("/a", "1", False) == "ce:~2fa:1"
    assert identity.event_key("/a", "1", True) == "ce:~2fa:1:resolved"
    assert len(identity.event_key("x" * 2048, "y" * 2048, True)) == 255


def test_idempotency_key_has_index_and_rule_where_there_are_any() -> None:
    assert identity.idempotency_key("anonymous", "a b", None, None, False) == "id:anonymous:a~20b"
    assert identity.idempotency_key("agents", "x", 3, "disk-full", True) == "id:agents:x:3:disk-full:resolved"


@given(st.text(min_size=1, max_size=255), st.text(min_size=1, max_size=255), st.text(max_size=64))
def test_a_key_is_at_most_255_bytes_of_ascii(host: str, name: str, severity: str) -> None:
    key = identity.window_key(identity.incident(host, name, {"a": "b"}), AT, MINUTE, severity, 1, True)
    assert len(key.encode()) <= 255
    assert re.fullmatch(r"[A-Za-z0-9_~:-]+", key)


def test_what_is_cut_still_differs() -> None:
    long = "ö" * 255
    assert identity.incident(long, "a", {}) != identity.incident(long, "b", {})
    incident = identity.incident(long, "a", {})
    assert identity.episode_key(incident, AT, False) != identity.episode_key(incident, AT, True)
    assert bounded("x" * 255) == "x" * 255
    assert len(bounded("x" * 256)) == 255

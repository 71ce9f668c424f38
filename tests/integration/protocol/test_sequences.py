"""What comes of sequences of native alerts and readings: how many deliveries, under which keys, where to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from common import keys
from dispatcher.claim import Verdict
from tests.integration.protocol.picture import NAMESPACE
from tests.integration.protocol.sender import TEN, WINDOW, Sender, deliver_resolutions_first


async def send(sender: Sender, bodies: Sequence[dict[str, Any]]) -> list[str]:
    """Each body twice, in this order, and all of them once more; the status of each at first."""
    first = []
    for body in bodies:
        stored, repeated = await sender.alert(**body), await sender.alert(**body)
        assert (repeated.key, repeated.status, repeated.conflict) == (stored.key, "duplicate", False)
        assert repeated.destinations == stored.destinations
        first.append(stored)
    for body, stored in zip(bodies, first, strict=True):
        again = await sender.alert(**body)
        assert (again.key, again.status) == (stored.key, "duplicate")
    return [stored.status for stored in first]


F: dict[str, Any] = {"name": "disk"}
R: dict[str, Any] = {"name": "disk", "status": "resolved"}


async def test_firings_of_one_window_are_one_delivery(sender: Sender) -> None:
    assert await send(sender, [F | {"at": 5}, F | {"at": 40}]) == ["queued", "duplicate"]
    assert await sender.keys() == [f"db1:disk:{WINDOW}"]


async def test_firings_of_two_windows_are_two(sender: Sender) -> None:
    assert await send(sender, [F | {"at": 5}, F | {"at": 65}]) == ["queued", "queued"]
    assert await sender.keys() == [f"db1:disk:{WINDOW}", f"db1:disk:{WINDOW + 1}"]


async def test_firing_resolution_firing_in_one_window_are_three(sender: Sender) -> None:
    assert await send(sender, [F | {"at": 5}, R | {"at": 20}, F | {"at": 40}]) == ["queued"] * 3
    start = f"db1:disk:{WINDOW}"
    assert await sender.keys() == [start, f"{start}:resolved", f"{start}:1"]


async def test_five_flaps_in_one_window_are_ten(sender: Sender) -> None:
    bodies = [each | {"at": 2 * n + k} for n in range(5) for k, each in enumerate((F, R))]
    assert await send(sender, bodies) == ["queued"] * 10
    assert len(set(await sender.keys())) == 10


async def test_rising_severity_is_news(sender: Sender) -> None:
    bodies = [F | {"at": 5, "severity": "warning"}, F | {"at": 6, "severity": "critical"}]
    assert await send(sender, bodies) == ["queued", "queued"]
    assert await sender.keys() == [f"db1:disk:{WINDOW}:warning", f"db1:disk:{WINDOW}:critical"]
    assert await sender.keys("pager") == [f"db1:disk:{WINDOW}:critical"]


async def test_other_content_in_the_window_is_a_conflict(sender: Sender) -> None:
    await sender.alert(**F, at=5, summary="one")
    other = await sender.alert(**F, at=6, summary="two")
    assert (other.status, other.conflict) == ("duplicate", True)
    assert len(await sender.keys()) == 1


@pytest.mark.parametrize("change", [{"value": 7}, {"annotations": {"a": "b"}}, {"at": 59}])
async def test_value_time_and_annotations_are_no_conflict(sender: Sender, change: dict[str, Any]) -> None:
    await sender.alert(**F, at=5)
    other = await sender.alert(**{**F, "at": 5, **change})
    assert (other.status, other.conflict) == ("duplicate", False)


async def test_labels_tell_incidents_apart(sender: Sender) -> None:
    var, home = {"labels": {"disk": "/var"}}, {"labels": {"disk": "/home"}}
    assert (
        await send(sender, [F | var | {"at": 5}, F | home | {"at": 5}, R | var | {"at": 9}]) == ["queued"] * 3
    )
    assert [verdict for _, verdict in await deliver_resolutions_first(sender)] == [
        Verdict.SUPERSEDED,
        Verdict.DELIVER,
    ]


async def test_resolution_repeated_for_fifteen_minutes_is_one(sender: Sender) -> None:
    await sender.alert(**F, at=0)
    stored = [await sender.alert(**R, at=30 + 60 * n) for n in range(15)]
    assert [each.status for each in stored] == ["queued"] + ["duplicate"] * 14
    assert len(await sender.keys()) == 2


async def test_resolution_of_what_was_never_heard_of_is_one(sender: Sender) -> None:
    assert await send(sender, [R | {"at": 5}, R | {"at": 70}]) == ["queued", "duplicate"]


async def test_starts_at_makes_the_key_of_an_episode(sender: Sender) -> None:
    start = {"starts_at": TEN}
    bodies = [
        *(F | start | {"at": 5}, F | start | {"at": 500}, R | start | {"at": 900}),
        *(R | start | {"at": 960}, F | {"starts_at": TEN + 1000, "at": 1000}),
    ]
    assert await send(sender, bodies) == ["queued", "duplicate", "queued", "duplicate", "queued"]
    key = f"db1:disk:{TEN}000"
    assert await sender.keys() == [key, f"{key}:resolved", f"db1:disk:{TEN + 1000}000"]


async def test_resolution_goes_where_its_firing_went_with_its_severity(sender: Sender) -> None:
    await sender.alert(**F, at=5, severity="critical")
    resolved = await sender.alert(**R, at=30)
    assert sorted(resolved.destinations) == ["chat", "pager"]
    for name in ("pager", "chat"):
        assert [alert.severity for alert in await sender.stream(name)] == ["critical"] * 2
    again = await sender.alert(**R, at=31)
    assert (again.status, sorted(again.destinations)) == ("duplicate", ["chat", "pager"])


async def test_severity_of_a_resolution_is_the_highest_of_its_episode(sender: Sender) -> None:
    for at, severity in enumerate(("warning", "critical", "info")):
        await sender.alert(**F, at=at, severity=severity)
    assert sorted((await sender.alert(**R, at=30)).destinations) == ["chat", "pager"]
    assert (await sender.stream())[-1].severity == "critical"


async def test_severity_of_its_own_is_kept(sender: Sender) -> None:
    await sender.alert(**F, at=5, severity="warning")
    await sender.alert(**R, at=30, severity="info")
    assert (await sender.stream())[-1].severity == "info"


async def test_firing_retried_after_its_resolution_was_delivered_is_superseded(sender: Sender) -> None:
    await send(sender, [F | {"at": 5}, R | {"at": 20}, F | {"at": 40}])
    verdicts = await deliver_resolutions_first(sender)
    assert verdicts == [(TEN + 5, Verdict.SUPERSEDED), (TEN + 40, Verdict.DELIVER)]


async def test_alert_without_a_time_means_now(sender: Sender) -> None:
    assert (await sender.alert(name="disk")).key == f"db1:disk:{WINDOW}"


async def test_rule_without_clear_fires_once_a_window(sender: Sender) -> None:
    stored = [
        each
        for at, value in ((1, 90), (2, 91), (3, 10), (61, 99))
        for each in await sender.reading(metric="heat", value=value, at=at)
    ]
    assert [each.status for each in stored] == ["queued", "duplicate", "queued"]
    assert await sender.keys() == [f"db1:hot:{WINDOW}", f"db1:hot:{WINDOW + 1}"]


async def test_rule_with_clear_makes_an_episode(sender: Sender) -> None:
    told = [(1, 100), (30, 101), (65, 95), (90, 100), (120, 50), (130, 40), (200, 100)]
    for _ in range(2):  # and all of it again, byte for byte
        for at, value in told:
            await sender.reading(metric="disk", value=value, at=at)
    first, second = f"db1:full:{TEN + 1}000", f"db1:full:{TEN + 200}000"
    for name in ("pager", "chat"):
        assert await sender.keys(name) == [first, f"{first}:resolved", second]
    resolved = (await sender.stream())[1]
    assert (resolved.starts_at, resolved.ends_at, resolved.value) == (
        (TEN + 1) * 1000,
        (TEN + 120) * 1000,
        50,
    )


async def test_old_reading_after_newer_ones_changes_no_state(sender: Sender) -> None:
    await sender.reading(metric="disk", value=100, at=10)
    state = keys.rule(NAMESPACE, "db1:full")
    before = await sender.redis.hgetall(state)
    assert await sender.reading(metric="disk", value=50, at=5) == []
    assert await sender.redis.hgetall(state) == before
    await sender.reading(metric="disk", value=50, at=20)
    closed = await sender.redis.hgetall(state)
    [late] = await sender.reading(metric="disk", value=100, at=15)
    assert late.status == "duplicate"
    assert await sender.redis.hgetall(state) == closed


async def test_labels_that_count_are_those_the_rule_names(sender: Sender) -> None:
    same = [{"disk": "a", "unit": "1"}, {"disk": "a", "unit": "2"}, {"disk": "b", "unit": "1"}]
    stored = [
        each
        for labels in same
        for each in await sender.reading(metric="space", value=99, at=1, labels=labels)
    ]
    assert stored[0].key == stored[1].key != stored[2].key

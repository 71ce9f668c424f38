"""What comes of sequences in the formats of other senders: episodes of those that repeat, and the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from redis.asyncio import Redis

from common import keys
from common.settings import Match, Route
from dispatcher.claim import Verdict
from ingest import identity
from ingest.event import Stored
from tests.integration.protocol.picture import NAMESPACE
from tests.integration.protocol.sender import TEN, WINDOW, Sender, deliver_resolutions_first
from tests.support.fleet import eventually
from tests.support.servers import Server
from tests.support.settings import build

LABELS = {"alertname": "Down", "instance": "db1:9100", "severity": "warning"}
INCIDENT = f"am:{identity.fingerprint(LABELS)}"
MINUTE = 60
ROUTES = ("/api/v2/alerts", "/v1/alertmanager", "/v1/grafana")
routes = pytest.mark.parametrize("route", ROUTES)


def text(at: float) -> str:
    """RFC 3339, to the millisecond."""
    return datetime.fromtimestamp(round(at, 3), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Repeating:
    """One Prometheus, Alertmanager or Grafana; times in seconds before (below zero) or after `now`."""

    def __init__(self, sender: Sender, route: str, **labels: str) -> None:
        self.sender = sender
        self.route = route
        self.labels = LABELS | labels
        self.now = round(time.time())

    async def fires(self, start: float, **fields: Any) -> Stored:
        """The alert fires since then."""
        return await self._post("firing", {"startsAt": text(self.now + start), **fields})

    async def ends(self, start: float, end: float, **fields: Any) -> Stored:
        """It is over since then."""
        times = {"startsAt": text(self.now + start), "endsAt": text(self.now + end)}
        return await self._post("resolved", {**times, **fields})

    async def _post(self, status: str, item: dict[str, Any]) -> Stored:
        item = {"labels": self.labels, **item}
        body: object = [item]
        if self.route == ROUTES[0]:
            if status == "firing":
                item["endsAt"] = text(self.now + 4 * MINUTE)
        else:
            item["status"] = status
            item.setdefault("endsAt", "0001-01-01T00:00:00Z")
            body = {"alerts": [item], "version": "4", "status": status}
        [stored] = await self.sender.post(self.route, body, now=(self.now + 10) * 1000)
        return stored

    def key(self, start: float, end: str = "r0") -> str:
        """Of the episode that started then."""
        return f"{INCIDENT}:{(self.now + start) * 1000}:{end}"


def statuses(stored: Sequence[Stored]) -> list[str]:
    assert not any(each.conflict for each in stored)
    return [each.status for each in stored]


@routes
async def test_a_firing_that_is_repeated_is_one(sender: Sender, route: str) -> None:
    prometheus = Repeating(sender, route)
    told = [await prometheus.fires(-900) for _ in range(15)]
    assert statuses(told) == ["queued"] + ["duplicate"] * 14
    assert await sender.keys() == [prometheus.key(-900)]


async def test_what_is_made_anew_each_time_is_no_conflict(sender: Sender) -> None:
    one, two = Repeating(sender, ROUTES[0]), Repeating(sender, ROUTES[0])
    told = [
        await one.fires(-60, annotations={"summary": "97%"}, generatorURL="http://prom-0/"),
        await two.fires(-45, annotations={"summary": "98%"}, generatorURL="http://prom-1/"),
    ]
    assert statuses(told) == ["queued", "duplicate"]


@routes
async def test_a_restart_gives_a_new_start_and_no_new_episode(sender: Sender, route: str) -> None:
    prometheus = Repeating(sender, route)
    told = [await prometheus.fires(start) for start in (-900, -300, -300, -20)]
    told.append(await prometheus.ends(-20, -1))
    told.append(await prometheus.ends(-900, -1))
    assert statuses(told) == ["queued", *["duplicate"] * 3, "queued", "duplicate"]
    assert await sender.keys() == [prometheus.key(-900), prometheus.key(-900, "resolved")]
    fired, over = await sender.stream()
    assert fired.starts_at == over.starts_at == (prometheus.now - 900) * 1000


@routes
async def test_a_pair_is_one_episode_and_one_resolution(sender: Sender, route: str) -> None:
    one, two = Repeating(sender, route), Repeating(sender, route)
    told = [
        *[await one.fires(-600), await two.fires(-585), await one.fires(-600), await two.fires(-585)],
        *[
            await one.ends(-600, -20),
            await two.fires(-585),
            await two.ends(-585, -5),
            await one.ends(-600, -20),
        ],
    ]
    assert statuses(told) == ["queued", *["duplicate"] * 3, "queued", *["duplicate"] * 3]
    assert await sender.keys() == [one.key(-600), one.key(-600, "resolved")]


@routes
async def test_one_of_a_pair_that_goes_on_firing_is_heard(sender: Sender, route: str) -> None:
    one, two = Repeating(sender, route), Repeating(sender, route)
    await one.fires(-900)
    assert (await two.fires(-890)).status == "duplicate"
    assert (await one.ends(-900, -300)).status == "queued"
    again = await two.fires(-890)  # five minutes after that end
    assert again.status == "queued"
    assert (await two.fires(-890)).key == again.key
    assert (await one.ends(-900, -300)).status == "duplicate"
    assert (await sender.stream())[-1].since > (two.now - 300) * 1000  # so that nothing supersedes it
    over = await two.ends(-890, 5)
    assert over.status == "queued"
    assert over.key == again.key.removesuffix("r0") + "resolved"


@routes
async def test_a_resolution_that_is_repeated_is_one(sender: Sender, route: str) -> None:
    prometheus = Repeating(sender, route)
    await prometheus.fires(-1000)
    told = [await prometheus.ends(-1000, -900) for _ in range(15)]
    assert statuses(told) == ["queued"] + ["duplicate"] * 14


@routes
async def test_episodes_that_follow_each_other(sender: Sender, route: str) -> None:
    prometheus = Repeating(sender, route)
    starts = (-3600, -3000, -2400)
    for start in starts:
        assert (await prometheus.fires(start)).key == prometheus.key(start)
        assert (await prometheus.ends(start, start + 300)).key == prometheus.key(start, "resolved")
    assert len(set(await sender.keys())) == 6
    for start in starts:  # all of them are known for long
        again = await prometheus.ends(start, start + 300)
        assert (again.status, again.key) == ("duplicate", prometheus.key(start, "resolved"))


async def test_a_late_firing_changes_nothing(sender: Sender) -> None:
    prometheus = Repeating(sender, ROUTES[0])
    await prometheus.fires(-600)
    await prometheus.ends(-600, -60)
    incident = keys.incident(NAMESPACE, INCIDENT)
    before = await sender.redis.get(incident)
    late = await prometheus.fires(-600)
    assert (late.status, late.key) == ("duplicate", prometheus.key(-600))
    assert await sender.redis.get(incident) == before


async def test_a_resolution_that_nobody_heard_the_firing_of(sender: Sender) -> None:
    prometheus = Repeating(sender, ROUTES[0])
    told = [await prometheus.ends(-600, -300), await prometheus.ends(-600, -300)]
    told += [await prometheus.ends(-200, -100), await prometheus.ends(-200, -100)]
    assert statuses(told) == ["queued", "duplicate", "queued", "duplicate"]


async def test_a_resolution_that_was_overtaken_ends_its_own_episode_only(sender: Sender) -> None:
    prometheus = Repeating(sender, ROUTES[0])
    await prometheus.fires(-900)
    assert (await prometheus.fires(-200)).status == "duplicate"  # it may be a restart
    assert (await prometheus.ends(-900, -300)).key == prometheus.key(-900, "resolved")
    assert (await prometheus.fires(-200)).key == prometheus.key(-200)
    assert (await prometheus.ends(-200, -1)).key == prometheus.key(-200, "resolved")
    assert len(await sender.keys()) == 4


async def test_the_repeat_interval_is_counted_from_the_start(senders: Callable[..., Sender]) -> None:
    sender = senders(3600)
    prometheus = Repeating(sender, ROUTES[0])
    first = await prometheus.fires(-3 * 3600 - 60)
    assert first.key == prometheus.key(-3 * 3600 - 60, "r3")
    assert (await prometheus.fires(-3 * 3600 - 60)).status == "duplicate"
    over = await prometheus.ends(-3 * 3600 - 60, -1)
    assert over.key == prometheus.key(-3 * 3600 - 60, "resolved")


async def test_a_firing_goes_out_again_with_each_interval(senders: Callable[..., Sender]) -> None:
    sender = senders(0.2)
    prometheus = Repeating(sender, ROUTES[0])
    stored: list[Stored] = []

    async def three() -> bool:
        stored.append(await prometheus.fires(0))
        return statuses(stored).count("queued") == 3

    await eventually(three, "three deliveries")
    numbers = [int(key.rpartition(":r")[2]) for key in await sender.keys()]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 3


async def test_a_late_firing_is_counted_up_to_the_end(senders: Callable[..., Sender]) -> None:
    sender = senders(3600)
    prometheus = Repeating(sender, ROUTES[0])
    start, stop = (prometheus.now - 3610) * 1000, (prometheus.now - 30) * 1000
    known = f"resolved {start} {stop} 2warning chat {start}:{stop}:0:2warning"
    await sender.redis.set(keys.incident(NAMESPACE, INCIDENT), known)
    assert (await prometheus.fires(-3610)).key == prometheus.key(-3610, "r0")


async def test_replicas_agree(senders: Callable[..., Sender]) -> None:
    one, two = Repeating(senders(), ROUTES[0]), Repeating(senders(), ROUTES[1])
    told = [await one.fires(-60), await two.fires(-50), await two.ends(-50, -1), await one.ends(-60, -1)]
    assert statuses(told) == ["queued", "duplicate", "queued", "duplicate"]


async def test_an_open_episode_is_known_for_as_long_as_it_is_told(sender: Sender) -> None:
    prometheus = Repeating(sender, ROUTES[0])
    await prometheus.fires(-60)
    incident = keys.incident(NAMESPACE, INCIDENT)
    await sender.redis.pexpire(incident, 10_000)
    await prometheus.fires(-60)
    assert await sender.redis.pttl(incident) > 60_000


@routes
async def test_a_resolution_goes_where_its_firing_went(sender: Sender, route: str) -> None:
    critical = Repeating(sender, route, severity="critical")
    assert sorted((await critical.fires(-60)).destinations) == ["chat", "pager"]
    assert sorted((await critical.ends(-60, -1)).destinations) == ["chat", "pager"]


async def test_what_the_routes_were_when_it_fired_is_remembered(server: Server, redis: Redis) -> None:
    def sender(*names: str) -> Sender:
        routes = [Route(to=list(names))]
        settings = build(destinations=["pager", "chat", "other"], routes=routes)
        return Sender(redis, settings, cluster=server.kind == "cluster")

    await Repeating(sender("pager"), ROUTES[0]).fires(-60)
    assert (await Repeating(sender("chat"), ROUTES[0]).fires(-60)).destinations == ["chat"]
    over = await Repeating(sender("other"), ROUTES[0]).ends(-60, -1)
    assert sorted(over.destinations) == ["chat", "other", "pager"]


async def test_a_firing_not_later_than_a_delivered_resolution_is_superseded(sender: Sender) -> None:
    prometheus = Repeating(sender, ROUTES[0])
    for start, end in ((-900, -600), (-500, None)):
        await prometheus.fires(start)
        if end is not None:
            await prometheus.ends(start, end)
    assert await deliver_resolutions_first(sender) == [
        (prometheus.now - 900, Verdict.SUPERSEDED),
        (prometheus.now - 500, Verdict.DELIVER),
    ]


def event(event_id: str, at: int = 5, **data: Any) -> dict[str, Any]:
    told = {"specversion": "1.0", "id": event_id, "source": "/db1", "type": "disk", "subject": "/var"}
    return {**told, "time": text(TEN + at), "data": data}


async def test_cloudevents_are_told_apart_by_their_ids(sender: Sender) -> None:
    first = await sender.post("/v1/events", [event("1"), event("2", 6), event("1")])
    assert statuses(first) == ["queued", "queued", "duplicate"]
    assert await sender.keys() == ["ce:~2fdb1:1", "ce:~2fdb1:2"]


async def test_a_cloudevent_that_resolves_goes_where_its_firing_went(sender: Sender) -> None:
    await sender.post("/v1/events", event("1", severity="critical"))
    [over] = await sender.post("/v1/events", event("2", 9, status="resolved"))
    assert (over.key, sorted(over.destinations)) == ("ce:~2fdb1:2:resolved", ["chat", "pager"])
    assert [alert.severity for alert in await sender.stream("pager")] == ["critical", "critical"]
    assert await deliver_resolutions_first(sender) == [(TEN + 5, Verdict.SUPERSEDED)]


def notification(severity: str, at: int) -> list[dict[str, Any]]:
    labels = {"alertname": "collectd_df", "instance": "db1", "df": "var", "severity": severity}
    return [{"labels": labels, "annotations": {"summary": str(at)}, "startsAt": text(TEN + at)}]


async def test_notifications_of_collectd_within_a_minute(sender: Sender) -> None:
    bodies = [notification("FAILURE", 5), notification("OKAY", 20), notification("FAILURE", 40)]
    for expected in ("queued", "duplicate"):  # and all of it again
        told = [stored for body in bodies for stored in await sender.post("/v1/collectd", body)]
        assert statuses(told) == [expected] * 3
        assert all(sorted(stored.destinations) == ["chat", "pager"] for stored in told)
    assert len(await sender.keys()) == 3


async def test_a_route_keeps_resolutions_away_that_nothing_had_fired_for(
    server: Server, redis: Redis
) -> None:
    routes = [
        Route(match=Match(source="collectd", status="resolved"), to=["nowhere"]),
        Route(to=["chat"]),
    ]
    settings = build(destinations=["chat", "nowhere"], routes=routes)
    sender = Sender(redis, settings, cluster=server.kind == "cluster")
    for body in (notification("OKAY", 1), notification("FAILURE", 5), notification("OKAY", 20)):
        await sender.post("/v1/collectd", body)
    assert [alert.status for alert in await sender.stream()] == ["firing", "resolved"]


def value(value: float, at: int) -> list[dict[str, Any]]:
    return [{"host": "db1", "plugin": "disk", "type": "full", "values": [value], "time": TEN + at}]


def field(value: float, at: int) -> dict[str, Any]:
    return {"name": "disk", "fields": {"full": value}, "tags": {"host": "db1"}, "timestamp": TEN + at}


@pytest.mark.parametrize(("route", "body"), [("/v1/collectd", value), ("/v1/telegraf", field)])
async def test_readings_of_others_meet_rules(
    sender: Sender, route: str, body: Callable[[float, int], object]
) -> None:
    told = [(1, 100), (30, 101), (65, 95), (120, 50), (130, 40), (200, 100)]
    for _ in range(2):  # and all of it again, byte for byte
        for at, measured in told:
            await sender.post(route, body(measured, at))
    first, second = f"db1:filled:{TEN + 1}000", f"db1:filled:{TEN + 200}000"
    assert await sender.keys() == [first, f"{first}:resolved", second]
    state = keys.rule(NAMESPACE, "db1:filled")
    before = await sender.redis.hgetall(state)
    assert await sender.post(route, body(0, 150)) == []  # old
    assert await sender.redis.hgetall(state) == before


async def test_native_alerts_and_those_of_prometheus_are_never_one(sender: Sender) -> None:
    await Repeating(sender, ROUTES[0]).fires(-60)
    native = await sender.alert(name="Down", host="am", at=5)
    assert native.key == f"~61m:Down:{WINDOW}"

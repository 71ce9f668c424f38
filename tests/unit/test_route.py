"""Routes: first match wins, unless it goes on."""

from __future__ import annotations

from typing import Any

import pytest

from common.alert import Alert, Status
from common.settings import Match, Route
from ingest.route import Looked, Router
from tests.support.settings import build


def alert(**fields: Any) -> Alert:
    return Alert(**{"incident": "i", "host": "h", "name": "n", "timestamp": 1, **fields})


def router(*routes: Route) -> Router:
    return Router(build(destinations=["pager", "chat", "log"], routes=routes))


def test_first_match_wins() -> None:
    routed = router(Route(match=Match(severity="critical"), to=["pager"]), Route(to=["chat"]))
    assert routed.destinations(alert(severity="critical")) == ("pager",)
    assert routed.destinations(alert(severity="info")) == ("chat",)
    assert routed.destinations(alert()) == ("chat",)


def test_continue_adds_and_the_order_is_that_of_the_file() -> None:
    routed = router(
        Route(match=Match(host="h"), to=["log", "chat"], continue_=True),
        Route(match=Match(host="other"), to=["pager"]),
        Route(to=["chat", "pager"]),
    )
    assert routed.destinations(alert()) == ("pager", "chat", "log")
    assert routed.destinations(alert(host="other")) == ("pager",)


def test_what_nothing_matches_goes_nowhere() -> None:
    assert router(Route(match=Match(name="x"), to=["log"])).destinations(alert()) == ()


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        (Match(), True),
        (Match(host=["a", "h"]), True),
        (Match(host="h", name="other"), False),
        (Match(status="firing"), False),
        (Match(status="resolved", source="native"), True),
        (Match(labels={"team": "ops"}), True),
        (Match(labels={"team": ["dev", "ops"], "zone": "a"}), False),
        (Match(labels={"zone": ""}), True),
        (Match(labels={"team": ""}), False),
        (Match(severity=[]), False),
    ],
)
def test_all_that_is_given_must_hold(match: Match, matches: bool) -> None:
    routed = router(Route(match=match, to=["log"]))
    given = alert(status=Status.RESOLVED, labels={"team": "ops"})
    assert [not look.field for look in routed.looked_at(given)] == [matches]
    given = alert(status=Status.RESOLVED, labels={"team": "ops"})
    assert bool(routed.destinations(given)) is matches


def test_why_not_the_others() -> None:
    routed = router(
        Route(match=Match(name="n", severity=["error", "critical"]), to=["pager"]),
        Route(match=Match(labels={"team": "ops"}), to=["log"]),
        Route(match=Match(host="h"), to=["log"], continue_=True),
        Route(match=Match(name="n"), to=["chat"]),
        Route(to=["pager"]),
    )
    given = alert(severity="info")
    assert routed.looked_at(given) == [
        Looked(0, ("pager",), False, "severity", "info", ("critical", "error")),
        Looked(1, ("log",), False, "labels.team", None, ("ops",)),
        Looked(2, ("log",), True),
        Looked(3, ("chat",), False),
    ]
    assert routed.destinations(given) == ("chat", "log")

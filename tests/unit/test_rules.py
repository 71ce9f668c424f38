"""Rules: which reading meets which, and the alert that comes of it."""

from __future__ import annotations

from typing import Any

import pytest

from common.alert import Status
from common.settings import Rule
from ingest.event import Reading
from ingest.rules import Rules, Verdict, render


def reading(value: float = 1, **fields: Any) -> Reading:
    return Reading(**{"host": "web-1", "metric": "disk", "value": value, "timestamp": 5, **fields})


def rule(**fields: Any) -> Rule:
    return Rule(**{"name": "disk-full", "metric": "disk", "when": ">= 100", **fields})


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (101, Verdict.FIRES),
        (100, Verdict.FIRES),
        (99.9, Verdict.BETWEEN),
        (90, Verdict.BETWEEN),
        (89.9, Verdict.CLEARS),
    ],
)
def test_between_when_and_clear_lies_a_verdict_of_its_own(value: float, verdict: Verdict) -> None:
    [judgement] = Rules([rule(clear="< 90")]).judge(reading(value))
    assert judgement.verdict is verdict


def test_a_rule_without_clear_only_fires() -> None:
    rules = Rules([rule()])
    assert rules.judge(reading(99)) == []
    [judgement] = rules.judge(reading(100))
    assert judgement.verdict is Verdict.FIRES


def test_metric_and_labels_choose_the_rule() -> None:
    rules = Rules([rule(labels={"mount": "/var"}), rule(name="other", metric="cpu")])
    assert rules.judge(reading(100)) == []
    assert rules.judge(reading(100, labels={"mount": "/home"})) == []
    assert [one.rule.name for one in rules.judge(reading(100, labels={"mount": "/var", "x": "y"}))] == [
        "disk-full"
    ]
    assert [one.rule.name for one in rules.judge(reading(100, metric="cpu"))] == ["other"]


def test_by_decides_what_is_one_incident() -> None:
    rules = Rules([rule(by=["mount"])])
    one, two, three = (
        rules.judge(reading(100, labels={"mount": mount, "pid": pid}))[0].incident
        for mount, pid in (("/var", "1"), ("/var", "2"), ("/home", "1"))
    )
    assert one == two != three


def test_the_alert_of_a_reading() -> None:
    labels = {"mount": "/var"}
    rules = Rules([rule(severity="critical", summary="{host} {mount} at {value}% of {metric}")])
    alert = rules.judge(reading(100.0, labels=labels))[0].event().alert
    assert (alert.host, alert.name, alert.severity, alert.source) == (
        "web-1",
        "disk-full",
        "critical",
        "reading",
    )
    assert (alert.summary, alert.value, alert.labels) == ("web-1 /var at 100% of disk", 100.0, labels)
    assert (alert.timestamp, alert.starts_at, alert.ends_at, alert.status) == (5, None, None, Status.FIRING)


def test_an_episode_ends_in_a_resolution() -> None:
    [judgement] = Rules([rule(clear="< 90")]).judge(reading(80))
    alert = judgement.event(2, 5).alert
    assert (alert.status, alert.starts_at, alert.ends_at, alert.since) == (Status.RESOLVED, 2, 5, 5)


def test_a_template_reaches_nothing_but_the_reading() -> None:
    given = reading(0.1, labels={"a": "{host}", "host": "not me"})
    assert render("{host} {a} {value}", given) == "web-1 {host} 0.1"
    for text in ("{unknown}", "{host.__class__}", "{0}", "{}", "{", "}{", "{{host}", "%s", "{value!r}"):
        assert render(text, given) in {text, "{web-1"}

"""Retry policies: presets, what differs from them, and the schedules in the comment of policy.py."""

from __future__ import annotations

import pytest

from common.policy import PRESETS, Policy, record_ttl, retry_policy
from common.settings import Destination, Retry
from common.units import Duration

HOUR = 3600


def destination(**retry: object) -> Destination:
    return Destination(name="a", type="stdout", retry=Retry(**retry))  # type: ignore[arg-type]  # names from a test


def test_presets_are_those_of_the_design() -> None:
    page = retry_policy(destination(preset="page"))
    assert page == Policy(attempts=8, base=1.0, cap=300.0, max_age=Duration(HOUR))
    webhook = retry_policy(destination())
    assert (webhook.attempts, webhook.max_age) == (10, Duration(76 * HOUR))


def test_what_is_given_wins_over_the_preset() -> None:
    policy = retry_policy(destination(preset="page", attempts=3, cap=Duration(60)))
    assert policy == Policy(attempts=3, base=1.0, cap=60.0, max_age=Duration(HOUR))


def test_each_field_alone_can_be_given() -> None:
    given = {"attempts": 1, "base": Duration(0.01), "cap": Duration(7200), "max_age": Duration(5)}
    for name, value in given.items():
        assert getattr(retry_policy(destination(preset="page", **{name: value})), name) == value


def test_the_webhook_schedule_covers_the_horizon() -> None:
    webhook = PRESETS["webhook"]
    times = [round(at / HOUR, 2) for at in webhook.expected()]
    assert times == [0, 0, 0.04, 0.29, 1.29, 3.79, 8.79, 15.79, 25.79, 37.79]
    longest = sum(webhook.ceiling(attempt) for attempt in range(1, webhook.attempts))
    assert longest == 75 * HOUR + 35 * 60 + 5
    assert longest < webhook.max_age


def test_a_base_of_ones_own_replaces_the_schedule() -> None:
    policy = retry_policy(destination(base=Duration(0.5)))
    assert [policy.ceiling(attempt) for attempt in (1, 2, 3)] == [0.5, 1.0, 2.0]
    assert retry_policy(destination(cap=Duration(60))).ceiling(3) == 60


def test_the_page_schedule() -> None:
    assert PRESETS["page"].expected() == [0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 63.5]


@pytest.mark.parametrize(("attempt", "ceiling"), [(1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (5000, 300)])
def test_ceiling(attempt: int, ceiling: float) -> None:
    assert PRESETS["page"].ceiling(attempt) == ceiling


def test_a_record_outlives_the_delivery_by_remember() -> None:
    ttl = record_ttl(PRESETS["page"], Duration(86400))
    assert ttl == Duration(25 * HOUR)
    assert ttl.ms == 90_000_000

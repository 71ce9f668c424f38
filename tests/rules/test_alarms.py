"""The alarms: each is raised by its cause, not by what looks like it, ends with it, and has a heading."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rules.pages import DOCS, ROOT, anchors
from tests.support.senders import installed

PROMETHEUS = ROOT / "grafana" / "prometheus"
GROUPS = yaml.safe_load((PROMETHEUS / "rules.yaml").read_text("utf-8"))["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
OPERATIONS = (DOCS / "operations.md").read_text("utf-8")

each = pytest.mark.parametrize(
    "rule", RULES, ids=lambda rule: f"{rule['alert']}-{rule['labels']['severity']}"
)


def section(heading: str) -> str:
    """What stands under a heading of operations.md."""
    parts = re.split(r"^## ", OPERATIONS, flags=re.MULTILINE)
    [found] = [part for part in parts if "".join(anchors_of(part)) == heading]
    return found


def anchors_of(part: str) -> list[str]:
    """The anchor of a part that begins with its heading."""
    return [re.sub(r"[^\w -]", "", part.split("\n", 1)[0].lower()).replace(" ", "-")]


@each
def test_an_alarm_leads_to_its_heading(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert (page, rule["labels"]["severity"] in ("critical", "warning")) == ("docs/operations.md", True)
    assert anchor in anchors(ROOT / page)
    assert f"Alarm `{rule['alert']}`" in section(anchor)
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}


def test_each_alarm_has_a_heading_of_its_own() -> None:
    told = {(rule["alert"], rule["annotations"]["runbook_url"]) for rule in RULES}
    assert Counter(alert for alert, _ in told).most_common(1)[0][1] == 1
    assert Counter(heading for _, heading in told).most_common(1)[0][1] == 1


def test_no_heading_speaks_of_an_alarm_that_is_not_there() -> None:
    assert set(re.findall(r"`(Redispatch\w+)`", OPERATIONS)) == {rule["alert"] for rule in RULES}


@each
def test_its_metrics_exist(rule: dict[str, Any]) -> None:
    known = re.findall(r"^\| `(redispatch_\w+)`", (DOCS / "metrics.md").read_text("utf-8"), re.MULTILINE)
    named = set(re.findall(r"\bredispatch_\w+", rule["expr"]))
    assert named
    assert named <= set(known)


HOUR = 60  # minutes, which is one sample each
# Two dispatchers that are well; `progress` is the time itself.
WELL = {
    "last_progress_timestamp_seconds": "0+60x60",
    "config_reload_failed": "0x60",
    'redis_unsafe,kind="no_aof"': "0x60",
    'gate_closed,destination="pager",reason="gone"': "0x60",
    'gate_closed,destination="pager",reason="breaker"': "0x60",
    'queue_depth,destination="pager"': "5x60",
    'queue_limit,destination="pager"': "100x60",
    'dead_letters,destination="pager"': "3x60",
    'dead_total,destination="pager",reason="attempts"': "7x60",
    'dead_total,destination="pager",reason="max_age"': "9x60",
    'dead_letters_limit,destination="pager"': "100x60",
    'consumers,destination="pager"': "2x60",
    'unaccounted_deliveries,destination="pager"': "0x60",
    'lost_entries_total,destination="pager"': "0x60",
    'oldest_delivery_age_seconds,destination="pager"': "1x60",
    'retry_overdue_seconds,destination="pager"': "0x60",
    'destination_removed,destination="pager"': "0x60",
    'canary_last_success_timestamp_seconds,destination="pager"': "0+60x60",
}


@dataclass(frozen=True)
class Case:
    """What differs (by metric, or metric and reason; `on` both or one), and the minutes at which the alarm is
    raised and over: a minute before it is not raised yet."""

    alarm: str
    severity: str
    changes: Mapping[str, str]
    raised: int
    over: int
    labels: str = 'destination="pager"'
    on: str = "ab"


CASES = [
    Case("Unaccounted", "critical", {"unaccounted_deliveries": "0x4 3x9 0x30"}, 6, 15),
    Case("EntriesLost", "critical", {"lost_entries_total": "0x4 2x50"}, 5, 20),
    # More were replayed in the same minute.
    Case(
        "DeadLettersGrow", "warning", {"dead_total attempts": "7x4 8x50", "dead_letters": "9x4 2x50"}, 5, 20
    ),
    Case("DeadLettersNearLimit", "warning", {"dead_letters": "85x9 10x30"}, 2, 10),
    Case("RedisUnsafe", "warning", {"redis_unsafe": "1x9 0x30"}, 1, 10, 'kind="no_aof"'),
    Case("QueueNearLimit", "warning", {"queue_depth": "90x9 10x30"}, 2, 10),
    Case("DeliveriesWait", "warning", {"oldest_delivery_age_seconds": "0+60x19 0x30"}, 12, 20),
    Case("RetryOverdue", "warning", {"retry_overdue_seconds": "0+60x9 0x30"}, 4, 10),
    # Behind a closed gate retries are overdue and consumers leave: that is not told, too.
    Case(
        "GateClosed",
        "critical",
        {"gate_closed gone": "1x9 0x30", "retry_overdue_seconds": "900x9 0x30", "consumers": "0x9 2x30"},
        1,
        10,
        'destination="pager",reason="gone"',
    ),
    Case(
        "GateClosed",
        "warning",
        {"gate_closed breaker": "1x9 0x30", "retry_overdue_seconds": "900x9 0x30"},
        5,
        10,
        'destination="pager",reason="breaker"',
    ),
    Case(
        "DestinationRemoved",
        "warning",
        {
            "destination_removed": "1x19 0x30",
            "oldest_delivery_age_seconds": "9000x19 0x30",
            "retry_overdue_seconds": "9000x19 0x30",
            "consumers": "0x19 2x30",
        },
        10,
        20,
    ),
    Case("CanaryLate", "critical", {"canary_last_success_timestamp_seconds": "0x9 600+60x30"}, 6, 10),
    Case("ConsumersMissing", "critical", {"consumers": "0x9 2x30"}, 2, 10),
    Case("NoDispatcher", "critical", {"last_progress_timestamp_seconds": "_x10 600+60x30"}, 2, 10, ""),
    Case(
        "NoProgress",
        "critical",
        {"last_progress_timestamp_seconds": "0x9 600+60x30"},
        4,
        10,
        'instance="b"',
        on="b",
    ),
    Case("ConfigNotReloaded", "warning", {"config_reload_failed": "1x9 0x30"}, 2, 10, 'instance="a"', on="a"),
]

# What is no reason to wake anybody.
QUIET: dict[str, Mapping[str, str]] = {
    "all is well": {},
    "dispatchers were started again, and tell of what was lost long ago": {
        "lost_entries_total": "7x20 _x1 7x40",
        "dead_letters": "3x20 _x1 3x40",
        "dead_total attempts": "7x20 _x1 7x40",
        "dead_total max_age": "9x20 _x1 9x40",
        "last_progress_timestamp_seconds": "0+60x20 _x1 1320+60x40",
        "canary_last_success_timestamp_seconds": "0+60x20 _x1 0x1 1440+60x40",
    },
    "new dispatchers tell of what died before them": {"dead_total attempts": "_x20 7x40"},
    "dead letters were replayed": {"dead_letters": "9x20 2x40"},
    "a gate that opens again by itself": {"gate_closed breaker": "0x9 1x3 0x9 1x3 0x40"},
    "rolled out with another destination": {"destination_removed": "0x9 1x8 0x40"},
}


def series(case: Case) -> list[dict[str, str]]:
    """What Prometheus has scraped of both dispatchers."""
    found = []
    for metric, well in WELL.items():
        name, *labels = metric.split(",")
        for instance in "ab":
            values = well
            for changed, others in case.changes.items() if instance in case.on else ():
                which, *reason = changed.split()
                if which == name and all(f'reason="{each}"' in labels for each in reason):
                    values = others
            told = ",".join(['job="d"', f'instance="{instance}"', *labels])
            found.append({"series": f"redispatch_{name}{{{told}}}", "values": values})
    return found


def firing(minute: int, expected: str | None) -> dict[str, Any]:
    """A look at all alarms in that minute."""
    labels = "alertname, severity, destination, reason, kind, instance"
    return {
        "expr": f'sum by ({labels}) (ALERTS{{alertstate="firing"}}) > 0',
        "eval_time": f"{minute}m",
        "exp_samples": [{"labels": expected, "value": 1}] if expected else [],
    }


def as_test(case: Case) -> dict[str, Any]:
    """The case as promtool wants it."""
    labels = f'alertname="Redispatch{case.alarm}",severity="{case.severity}"'
    expected = "{" + labels + (f",{case.labels}" if case.labels else "") + "}"
    looks = [(case.raised, expected), (case.over - 1, expected), (case.over, None)]
    before = [(case.raised - 1, None)]
    return {
        "name": f"{case.alarm} {case.severity}",
        "interval": "1m",
        "input_series": series(case),
        "promql_expr_test": [firing(*look) for look in before + looks],
    }


def as_quiet_test(what: str) -> dict[str, Any]:
    """No alarm in any minute."""
    case = Case(what, "", QUIET[what], 0, 0)
    looks = [firing(minute, None) for minute in range(HOUR)]
    return {"name": what, "interval": "1m", "input_series": series(case), "promql_expr_test": looks}


def promtool(*words: str) -> None:
    done = subprocess.run([installed("promtool"), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alarm_has_a_case() -> None:
    cases = [(f"Redispatch{case.alarm}", case.severity) for case in CASES]
    assert sorted(cases) == sorted((rule["alert"], rule["labels"]["severity"]) for rule in RULES)


def test_every_alarm_comes_and_goes_on_running_services() -> None:
    text = (ROOT / "tests" / "e2e" / "test_alarms_in_life.py").read_text("utf-8")
    names = {rule["alert"].removeprefix("Redispatch") for rule in RULES}
    assert {name for name in names if f'"{name}"' not in text and f"Redispatch{name}" not in text} == set()


def test_alarms_are_raised_and_end(tmp_path: Path) -> None:
    tests = [*map(as_quiet_test, QUIET), *map(as_test, CASES)]
    content = {"rule_files": [str(PROMETHEUS / "rules.yaml")], "evaluation_interval": "1m", "tests": tests}
    file = tmp_path / "alarms.yaml"
    file.write_text(yaml.safe_dump(content))
    promtool("test", "rules", str(file))


def test_prometheus_takes_the_configuration() -> None:
    promtool("check", "config", str(PROMETHEUS / "prometheus.yaml"))

"""What a rate needs: more of everything for more alerts, and a word where one of something is not enough."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from common.settings import Dedupe, Destination, Settings
from common.units import Duration, Rate
from ops.check import memory
from ops.cli import main
from ops.scale import FEWEST, need, readable, told

SINK = Destination(name="sink", type="discard")


def of(*destinations: Destination) -> Settings:
    return Settings(destinations=list(destinations or [SINK]))


def test_a_little_needs_what_may_be_gone_once() -> None:
    little = need(of(), Rate(1))
    assert (little.ingest, little.dispatchers, little.nodes) == (FEWEST, FEWEST, 1)
    assert "max_in_flight 1 per dispatcher" in "\n".join(told(of(), little))


def test_ten_times_as_much_needs_ten_times_as_much() -> None:
    settings = of(SINK, Destination(name="other", type="discard"))
    some, more = need(settings, Rate(10_000)), need(settings, Rate(100_000))
    for name in ("ingest", "dispatchers", "nodes", "memory", "slots"):
        assert getattr(more, name) == pytest.approx(10 * getattr(some, name), rel=0.25), name
    assert some.dispatchers == need(of(), Rate(20_000)).dispatchers


def test_remembering_for_an_hour_takes_less_than_for_a_day() -> None:
    hour = Settings(destinations=[SINK], dedupe=Dedupe(remember=Duration(3600)))
    assert need(hour, Rate(1000)).memory < need(of(), Rate(1000)).memory


def test_check_says_the_same_with_a_rate_and_without() -> None:
    settings = of(SINK, Destination(name="other", type="discard"))
    assert f" {readable(need(settings, Rate(1)).memory)} to remember;" in memory(settings, None)


def test_what_does_not_fit_is_named() -> None:
    slow = Destination(name="chat", type="discard", rate=Rate(1), max_in_flight=1)
    settings = of(SINK, slow)
    text = "\n".join(told(settings, need(settings, Rate(50_000))))
    assert "less at sink, chat" in text
    assert "chat: rate is lower than that" in text
    assert "one destination is in one Redis" in text


def test_one_attempt_is_one() -> None:
    assert "need 1 attempt under way at each" in "\n".join(told(of(SINK), need(of(SINK), Rate(1))))


@pytest.mark.parametrize("rate", ["1000", "1000/s", "60000/m"])
def test_the_command(tmp_path: Path, rate: str) -> None:
    file = tmp_path / "redispatch.yaml"
    file.write_text("destinations: [{name: sink, type: discard}]\nredis: {url: 'unix:///no/such'}\n")
    words = ["check", "--config", str(file), "--rate", rate]
    assert "at 1,000 alerts/s to each of 1: 2 ingest" in CliRunner().invoke(main, words).output
    document = json.loads(CliRunner().invoke(main, [*words, "--json"]).output)
    assert document["need"]["rate"] == 1000


def test_no_rate_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["check", "--rate", "many"])
    assert result.exit_code == 2
    assert "expected a rate such as" in result.output

"""What a Slack message looks like, and that no alert makes one that Slack would refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.alert import Alert, Status
from common.units import Rate, Secret
from dispatcher.destinations import kinds
from dispatcher.destinations.base import Unrenderable, Unusable
from dispatcher.destinations.slack import Settings, Slack, make
from dispatcher.destinations.slack_message import batch_message, escaped, message
from tests.support.deliveries import AT, alert, delivery

HUGE = 2**20


def texts(value: Any) -> Iterator[str]:
    """Every text that Slack would parse."""
    if isinstance(value, dict):
        if value.get("type") == "mrkdwn":
            assert value["verbatim"] is True
            yield value["text"]
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)


def units(text: str) -> int:
    """Its length however a service may count it, but for bytes."""
    return len(text.encode("utf-16-le")) // 2


def check(made: dict[str, Any]) -> str:
    """All its texts, once it is within what Slack takes."""
    assert 0 < len(made["text"]) <= 4000
    assert 0 < len(made["blocks"]) <= 50
    for block in made["blocks"]:
        if "text" in block:
            assert 0 < units(block["text"]["text"]) <= 3000
        for field in block.get("fields", ()):
            assert 0 < units(field["text"]) <= 2000
        assert len(block.get("fields", ())) <= 10
        assert len(block.get("elements", ())) <= 10
    assert len(json.dumps(made, ensure_ascii=False).encode()) < 50_000
    return "\n".join([made["text"], *texts(made["blocks"])])


def test_firing() -> None:
    made = message(
        alert(
            severity="critical",
            summary="disk at 97 %",
            value=97.5,
            labels={"mount": "/var", "env": "prod"},
            url="https://g.example/d?a=1&b=2",
        )
    )
    assert made["text"] == "CRITICAL disk on db1: disk at 97 %"
    headline, summary, fields, labels = made["blocks"]
    assert (
        headline["text"]["text"]
        == ":rotating_light: *CRITICAL* *<https://g.example/d?a=1&amp;b=2|disk>* on *db1*"
    )
    assert summary["text"]["text"] == "disk at 97 %"
    assert [field["text"] for field in fields["fields"]] == [
        "*Value*\n97.5",
        f"*Since*\n<!date^{AT // 1000}^{{date_short_pretty}} {{time_secs}}|2025-11-29T17:42:00.042Z>",
    ]
    assert labels["elements"][0]["text"] == "env=prod · mount=/var"
    check(made)


def test_resolved_is_told_from_firing() -> None:
    firing = alert(severity="critical", starts_at=AT - 60_000)
    over = alert(severity="critical", status=Status.RESOLVED, starts_at=AT - 60_000, ends_at=AT)
    made = message(over)
    assert made["text"] == "RESOLVED disk on db1"
    assert made["blocks"][0]["text"]["text"] == ":white_check_mark: *RESOLVED* *disk* on *db1*"
    fields = [field["text"].split("\n")[0] for field in made["blocks"][1]["fields"]]
    assert fields == ["*Was*", "*Since*", "*Until*"]
    assert ":white_check_mark:" not in check(message(firing))


@pytest.mark.parametrize(
    ("severity", "says"),
    [
        ("info", ":information_source: *INFO*"),
        ("warning", ":warning: *WARNING*"),
        ("error", ":red_circle: *ERROR*"),
        ("sev2", ":warning: *SEV2*"),
        (None, ":warning: *FIRING*"),
    ],
)
def test_severity(severity: str | None, says: str) -> None:
    assert message(alert(severity=severity))["blocks"][0]["text"]["text"].startswith(says)


def test_what_a_model_and_a_description_say_is_shown_once() -> None:
    notes = {"ai_summary": "As before.", "ai_summary_by": "small", "description": "long", "runbook": "no"}
    blocks = message(alert(summary="long", annotations=notes))["blocks"]
    assert [block["text"]["text"] for block in blocks[1:3]] == ["long", "As before.\n— small"]
    assert len(blocks) == 4


def test_no_host_no_labels_no_value() -> None:
    made = message(alert(host=""))
    assert made["text"] == "FIRING disk"
    assert made["blocks"][0]["text"]["text"] == ":warning: *FIRING* *disk*"
    assert len(made["blocks"]) == 2
    assert message(alert(host=" ", name="\n"))["text"] == "FIRING (no name)"
    assert "*(no name)*" in message(alert(name="\n"))["blocks"][0]["text"]["text"]


HOSTILE = "<!channel> <@U123> <#C1|x> <https://evil.example|click> @here @Everyone &amp; a < b > c"


def test_nothing_in_an_alert_is_a_mention_or_a_link() -> None:
    hostile = alert(
        host=HOSTILE,
        name=HOSTILE,
        severity=HOSTILE,
        summary=HOSTILE,
        labels={HOSTILE: HOSTILE},
        annotations={"description": HOSTILE, "ai_summary": HOSTILE},
        url="https://g.example/|x><!channel>",
    )
    for made in (message(hostile), batch_message([hostile, hostile])):
        said = check(made)
        for part in said.split("<")[1:]:
            assert part.startswith(("!date^", "https://g.example/%7Cx%3E%3C!channel%3E|")), part
        assert "@here" not in said
        assert "@Everyone" not in said
        assert "&amp;amp;" in said


@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "https://h/" + "x" * 2000, ""])
def test_a_url_that_is_no_link(url: str) -> None:
    assert "<" not in message(alert(url=url))["blocks"][0]["text"]["text"]


def test_an_entity_is_never_cut_in_two() -> None:
    for most in range(10, 30):
        cut = escaped("<" * HUGE, most)
        assert len(cut) <= most
        assert cut.removesuffix("…").replace("&lt;", "") == ""
    assert escaped("a" * 10, 10) == "a" * 10
    assert escaped("a" * 11, 10) == "a" * 9 + "…"


def huge(text: str) -> Alert:
    return alert(
        host=text * HUGE,
        name=text * HUGE,
        severity=text * HUGE,
        summary=text * HUGE,
        labels={f"{n}{text * 1000}": text * HUGE for n in range(30)},
        annotations={"description": text * HUGE},
        url="https://h/" + text * 900,
    )


@pytest.mark.parametrize("text", ["a", "&", "\ud800", "漢", "🔥", "\n", "@here "])
def test_huge_and_odd_texts_are_cut(text: str) -> None:
    check(message(huge(text)))
    check(batch_message([huge(text)] * 30))


def test_more_labels_than_are_shown() -> None:
    labels = message(alert(labels={f"l{n:02}": "x" for n in range(12)}))["blocks"][-1]
    assert labels["elements"][0]["text"].endswith("l09=x · … and 2 more")


def test_a_batch_is_one_message_in_the_order_given() -> None:
    made = batch_message(
        [alert(name="a", summary="one"), alert(name="b", status=Status.RESOLVED), alert(name="c")]
    )
    assert made["text"] == "3 alerts: 2 firing, 1 resolved; a on db1; b on db1; c on db1"
    assert [block["text"]["text"] for block in made["blocks"]] == [
        "*3 alerts: 2 firing, 1 resolved*",
        ":warning: *FIRING* *a* on *db1*\none",
        ":white_check_mark: *RESOLVED* *b* on *db1*",
        ":warning: *FIRING* *c* on *db1*",
    ]


def test_a_storm_shows_the_most_severe_and_says_how_many_are_missing() -> None:
    storm = [alert(name=f"n{n}", severity="info") for n in range(200)]
    storm[150] = alert(name="worst", severity="critical")
    storm[160] = alert(name="over", severity="critical", status=Status.RESOLVED)
    made = batch_message(storm)
    said = check(made)
    assert "*worst*" in said
    assert "*over*" not in said
    assert len(made["blocks"]) == 22
    assert made["blocks"][-1]["elements"][0]["text"] == "… and 180 more, not shown"


ANY = st.builds(
    alert,
    host=st.text(),
    name=st.text(min_size=1),
    severity=st.none() | st.text(),
    summary=st.none() | st.text(),
    status=st.sampled_from(Status),
    value=st.none() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False),
    labels=st.dictionaries(st.text(), st.text(), max_size=12),
    annotations=st.dictionaries(st.sampled_from(["description", "ai_summary"]), st.text()),
    url=st.none() | st.text().map("https://".__add__),
)


@given(ANY)
def test_any_alert_makes_a_message(of: Alert) -> None:
    check(message(of))
    check(batch_message([of, of]))


def slack(**settings: Any) -> Settings:
    given: dict[str, Any] = {"name": "chat", "type": "slack", "url": Secret("http://127.0.0.1:1/")}
    return Settings(**given | settings)


def test_settings() -> None:
    assert slack().rate == Rate(1)
    assert list(kinds.faults(slack())) == []
    assert list(kinds.faults(slack(url=None))) == [(("url",), "is missing; a slack needs one")]
    assert isinstance(kinds.make(slack()), Slack)
    assert kinds.batches("slack")
    with pytest.raises(Unusable, match="destination chat: url: "):
        make(slack(url=Secret("hidden")))


def test_a_request_is_the_message() -> None:
    one, two = delivery(), delivery(of=alert(name="other", timestamp=AT - 1))
    made = Slack(slack())
    assert json.loads(made.request([one]).body) == message(one.alert)
    assert json.loads(made.request([one, two]).body) == batch_message([two.alert, one.alert])
    with pytest.raises(Unrenderable, match="date value out of range"):
        made.request([delivery(of=alert(timestamp=10**15))])


def test_a_template_makes_the_text_and_what_alerts_say_is_harmless() -> None:
    template = Secret(
        "<!here> *{{ name }}*: {{ summary }} {% for k, v in labels.items() %}{{ k }}={{ v }}{% endfor %}"
    )
    one = delivery(of=alert(summary=HOSTILE, labels={"<!channel>": "&"}))
    said = json.loads(Slack(slack(template=template)).request([one]).body)
    assert said == {"text": f"<!here> *disk*: {escaped(HOSTILE, 3000)} &lt;!channel&gt;=&amp;"}
    assert list(kinds.faults(slack(template=template))) == []


def test_a_template_that_is_none_and_one_that_says_nothing() -> None:
    (fault,) = kinds.faults(slack(template=Secret("{{ nam }}")))
    assert fault[0] == ("template",)
    assert "nam is unknown; did you mean name?" in fault[1]
    ((path, says),) = kinds.faults(slack(template=Secret("{{ summary }}")))
    assert path == ("template",)
    assert "makes no text" in says
    with pytest.raises(Unusable, match="destination chat: line 1: "):
        make(slack(template=Secret("{{ nam }}")))

"""Templates: what they know, what they may, and what is found before an alert meets them."""

from __future__ import annotations

import contextlib
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.alert import Status
from dispatcher.destinations.base import Unrenderable
from dispatcher.destinations.template import Template, names_of, templated
from dispatcher.destinations.trial import fault, json_fault, samples
from tests.support.deliveries import alert, delivery


def render(text: str, **fields: object) -> str:
    return Template(text).render(names_of([delivery(of=alert(**fields))]))


def test_the_names_are_those_of_the_payload() -> None:
    names = "key incident host name severity status summary value labels annotations url starts_at ends_at"
    names += " timestamp attempt source"
    known = names_of([delivery()])
    assert set(known) == {*names.split(), "alerts", "count"}
    assert known["timestamp"] == "2025-11-29T17:42:00.042Z"
    assert known["alerts"] == [{name: known[name] for name in names.split()}]
    assert set(names_of([delivery(), delivery()])) == {"alerts", "count"}


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("{{ host }}/{{ name }} is {{ status }}", "db1/disk is firing"),
        ("{{ severity }}|{{ severity or 'none' }}|{{ severity | default('none', true) }}", "|none|none"),
        ("{{ severity | tojson }} {{ value | tojson }} {{ labels | tojson }}", 'null 93.5 {"a":"<b>\\"\'&"}'),
        ("{{ value }} {{ value | round | int }} {{ value * 2 }}", "93.5 94 187.0"),
        ("{{ value | round(value | int * 10000000) }} {{ value | round(-1) }}", "93.5 90.0"),
        ("{{ labels.a }}{{ labels['a'] }}{{ labels.get('b', '-') }}", "<b>\"'&<b>\"'&-"),
        ("{{ labels.b is defined }} {{ labels.b | default('none') }} {{ 'a' in labels }}", "false none true"),
        ("{% for k, v in labels.items() %}{{ loop.index }}{{ k }}={{ v }}{% endfor %}", "1a=<b>\"'&"),
        ("{{ labels.a | escape }} {{ labels.a | urlencode }}", "&lt;b&gt;&quot;&#x27;&amp; %3Cb%3E%22%27%26"),
        ("{{ alerts | map(attribute='host') | join(', ') }} ({{ count }})", "db1 (1)"),
        ("{{ alerts | map(attribute='host') | tojson }}", '["db1"]'),
        ("{{ 'a\nb\x00  c' | oneline }} {{ 'aXa' | replace('a', 'bb') }}", "a b c bbXbb"),
        ("{% if status == 'firing' %}\n  {{ host.upper() }}\n{% endif %}\n", "  DB1\n"),
        ("{{ '{{ host }}' }}", "{{ host }}"),
    ],
)
def test_what_is_made(text: str, made: str) -> None:
    assert render(text, value=93.5, labels={"a": "<b>\"'&"}) == made


def test_an_alerts_text_is_never_a_template() -> None:
    assert render("{{ summary }}", summary="{{ 7 * 7 }}{% raw %}") == "{{ 7 * 7 }}{% raw %}"


def test_labels_named_like_methods() -> None:
    odd = {"items": "1", "pop": "2", "get": "3", "__class__": "4"}
    text = "{{ labels['items'] }}{{ labels.pop }}{{ labels['get'] }}{{ labels.items() | length }}"
    assert render(text + "{{ labels['__class__'] }}", labels=odd) == "12344"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ host", "line 1: unexpected end of template"),
        ("a\n{% if host %}", "line 2: Unexpected end of template"),
        ("a\n{{ hots }}", "line 2: hots is unknown; did you mean host?"),
        ("{{ zzz }}{{ range(9) }}", "line 1: range is unknown (key, "),
        ("{{ host | centre }}", "line 1: No filter named 'centre'"),
        ("{{ host | center(99) }}", "line 1: No filter named 'center'"),
        ("\n{% include 'x' %}", "line 2: include is not available"),
        ("{% macro a() %}{{ a() }}{% endmacro %}", "line 1: macro is not available"),
        ("{% for a in alerts recursive %}{% endfor %}", "line 1: a loop can't be recursive"),
        ("{% extends host %}", "line 1: extends is not available"),
        ("{% for a in alerts %}" * 25 + "{% endfor %}" * 25, "is nested too deeply"),
        ("{{ " + "-" * 5000 + "1 }}", "is nested too deeply"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "is nested too deeply"),
    ],
)
def test_what_is_no_template(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(said)) as raised:
        Template(text)
    assert fault(text) == str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "{{ host.__class__ }}",
        "{{ host['__class__'] }}",
        "{{ labels['__class__'] }}",
        "{{ host.format.__globals__ }}",
        "{{ host.format(1) }}",
        "{{ labels.pop('a') }}",
        "{{ labels.update(alerts[0]) }}",
        "{{ labels.get.__self__ }}",
        "{{ alerts.append(1) }}",
        "{{ alerts | map('attr', '__class__') | list | tojson }}",
        "{{ alerts | map(attribute='host.__class__') | list | tojson }}",
        "{{ host | attr('__class__') if false else host.encode }}",
        "{{ self }}",
        "{{ labels.items }}",
        "{% for a in alerts %}{{ loop.cycle('a') }}{% endfor %}",
    ],
)
def test_nothing_but_data_is_reached(text: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        render(text, labels={"a": "b"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ 'a' * 1000000000 }}", r"\* is for numbers"),
        ("{{ [1] * 1000000000 }}", r"\* is for numbers"),
        ("{{ 9 ** 9 ** 9 ** 9 }}", r"\*\* is not available"),
        ("{{ '%999999999d' % 1 }}", "% is for numbers"),
        ("{% for a in summary %}{% endfor %}", "a text is no list"),
        (
            "{% for a in (summary | list) %}{% for b in [1, 2] %}{% endfor %}{% endfor %}",
            "more than 10000 rounds",
        ),
        ("{% for a in (summary | list) %}{{ summary }}{% endfor %}", "more than 4194304 characters"),
        ("{% set x %}{% for a in (summary | list) %}{{ summary }}{% endfor %}{% endset %}", "4194304 char"),
        ("{{ summary | replace('a', summary) }}", "more than 4194304 characters"),
        ("{{ summary | list | join(summary) }}", "more than 4194304 characters"),
        ("{{ labels.team }}", "there is no 'team'"),
        ("{{ labels }}", "no text; `| tojson`"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ value + 1 }}", "unsupported operand"),
        ("{{ host.nothing }}", "has no attribute 'nothing'"),
        ("{{ labels.nothing.nothing }}", "there is no 'nothing'"),
        ("{{ labels.nothing | tojson }}", "there is no 'nothing'"),
        ("{{ host | tojson }}", "surrogates"),
    ],
)
def test_what_ends_a_rendering(text: str, said: str) -> None:
    with pytest.raises(Unrenderable, match=rf"^line 2: .*{said}"):
        render("\n" + text, summary="a" * 10_000, host="\ud800")


def test_a_static_text_counts_too() -> None:
    with pytest.raises(Unrenderable, match="longer than 5 characters"):
        Template("abc{{ host }}").render(names_of([delivery()]), most=5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ labels.team }}", "line 1: there is no 'team'"),
        ("{% if severity %}{{ host }}{% else %}{{ labels.team }}{% endif %}", "line 1: there is no 'team'"),
        ("{% if status == 'resolved' %}\n{{ ends_at + 1 }}{% endif %}", "line 2: can only concatenate str"),
        ("{{ value + 1 }}", "line 1: unsupported operand"),
        ("{{ severity.upper() }}", "line 1: 'None' has no attribute 'upper'"),
    ],
)
def test_what_some_alerts_lack_is_found_before_they_come(text: str, said: str) -> None:
    found = fault(text)
    assert found is not None
    assert found.startswith(said)
    assert "(with a" in found


def test_quotes_are_found_before_they_come() -> None:
    found = fault('{"text": "{{ summary }}"}', look=json_fault)
    assert found is not None
    assert found.startswith("makes no JSON: ")
    assert found.endswith("(with an alert with quotes, line breaks and long texts)")
    assert fault('{"text": {{ summary | tojson }}}', look=json_fault) is None


def test_a_batch_has_no_host() -> None:
    assert fault("{{ host }}") is None
    assert str(fault("{{ host }}", batches=True)).startswith("line 1: 'host' is undefined (with a batch of")
    assert fault("{{ host if count == 1 else alerts[0].host }}", batches=True) is None
    assert fault("{% for one in alerts %}{{ one.host }}{% endfor %}", batches=True) is None


def test_samples_are_of_every_sort() -> None:
    of = {what: names_of([each]) for what, each in samples().items()}
    assert {names["status"] for names in of.values()} == set(Status)
    least = of["an alert that has only what is required"]
    assert {name for name, value in least.items() if value in (None, {})} == {
        *("severity", "summary", "value", "labels", "annotations", "url", "starts_at", "ends_at")
    }
    assert all(json.dumps(names) for names in of.values())


PIECES = [
    *("{{", "}}", "{%", "%}", "{#", "#}", "|", ".", ",", "(", ")", "[", "]", "'", '"', "=", "~", "*"),
    *("for ", "a", " in ", "endfor", "if ", "endif", "set ", "else", "not ", " is ", "defined", "loop"),
    *("host", "labels", "alerts", "value", "summary", "items", "get", "join", "replace", "map", "sort"),
    *("round", "truncate", "first", "__class__", "format", "macro ", "range", "0", "1e9", "99999", "x"),
    *("tojson", "none", "-", "%", "\n"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=25), st.sampled_from(["{{ %s }}", "{%% %s %%}", "%s"]))
@settings(max_examples=500)
def test_whatever_is_written_raises_what_is_promised(pieces: list[str], around: str) -> None:
    try:
        template = Template(around % "".join(pieces))
    except ValueError:
        return
    for each in samples().values():
        with contextlib.suppress(Unrenderable):
            assert len(template.render(names_of([each]), 1000)) <= 1000


def test_what_is_a_template() -> None:
    assert [templated(text) for text in ("", "a", "{ {", "{{ host }}", "{% if a %}")] == [0, 0, 0, 1, 1]

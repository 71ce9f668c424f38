"""What a webhook sends: alone, in batches, by templates, and what its check says of those."""

from __future__ import annotations

import json
from typing import Any

import pytest

from common.outcomes import OutcomeKind
from common.settings import Batch
from common.units import Secret
from dispatcher.destinations import webhook as kind
from dispatcher.destinations.base import Delivery, Unrenderable, Unusable
from dispatcher.destinations.payload import body
from dispatcher.destinations.signing import signature
from tests.support.deliveries import AT, alert, delivery, webhook

KEY = b"secret-secret-secret-secret-secret"
NOW = 1_764_438_200.9


def made(**settings: Any) -> kind.Webhook:
    return kind.Webhook(webhook(**settings), clock=lambda: NOW)


def hidden(**texts: str) -> dict[str, Secret]:
    return {name: Secret(text) for name, text in texts.items()}


def storm() -> list[Delivery]:
    """Three, the latest first."""
    times = {"c": AT + 2000, "b": AT + 2000, "a": AT}
    return [delivery(key, of=alert(host=key, timestamp=at)) for key, at in times.items()]


def told(settings: kind.Settings) -> dict[tuple[str | int, ...], str]:
    return dict(kind.faults(settings))


def test_one_alone() -> None:
    request = made(secrets=[Secret(KEY.decode())]).request([delivery()])
    assert request.body == body(delivery())
    signed = signature([KEY], "db1:disk:1", int(NOW), request.body)
    expected = {"webhook-id": "db1:disk:1", "webhook-timestamp": "1764438200", "webhook-signature": signed}
    assert request.headers == expected


def test_a_batch_is_ordered_by_time_and_named_by_its_members() -> None:
    request = made().request(storm())
    sent = json.loads(request.body)
    assert (sent["type"], sent["timestamp"]) == ("alert.batch", "2025-11-29T17:42:02.042Z")
    assert sent["data"]["count"] == 3
    assert [one["key"] for one in sent["data"]["alerts"]] == ["a", "b", "c"]
    assert sent["data"]["alerts"][0] == json.loads(body(storm()[2]))["data"]
    assert request == made().request(storm()[::-1])
    name = request.headers["webhook-id"]
    assert name.startswith("batch_")
    assert len(name) == len("batch_") + 32
    assert made().request(storm()[:2]).headers["webhook-id"] != name


def test_a_template_makes_the_body_and_is_signed() -> None:
    one = made(template=Secret('{"text": {{ summary | tojson }}}'), secrets=[Secret(KEY.decode())])
    request = one.request([delivery(of=alert(summary='"ü"'))])
    assert request.body == '{"text": "\\"ü\\""}'.encode()
    assert request.headers["webhook-signature"] == signature([KEY], "db1:disk:1", int(NOW), request.body)


def test_a_template_for_a_batch() -> None:
    one = made(template=Secret("{% for one in alerts %}{{ one.host }} {% endfor %}{{ count }}"))
    assert one.request(storm()).body == b"a b c 3"
    assert one.request(storm()[:1]).body == b"c 1"


def test_headers_by_template() -> None:
    headers = hidden(**{"X-Host": "{{ host }} ", "X-Fixed": "{ host }", "X-Sev": "{{ severity }}"})
    request = made(headers=headers).request([delivery(of=alert(host="päd 漢"))])
    ours = {name: value for name, value in request.headers.items() if name.startswith("x-")}
    assert ours == {"x-host": "päd 漢", "x-sev": ""}
    assert request.body == body(delivery(of=alert(host="päd 漢")))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"headers": hidden(A="{{ host }}")}, "header a: holds a line break or another control character"),
        ({"headers": hidden(A="{{ summary }}")}, "header a: line 1: more than 4096 characters"),
        ({"headers": hidden(A="{{ labels.a }}")}, "header a: line 1: there is no 'a'"),
        ({"template": Secret("a\n{{ labels.a }}")}, "line 2: there is no 'a'"),
        ({"template": Secret("{{ name }}")}, "surrogates not allowed"),
    ],
)
async def test_what_cannot_be_made_is_a_render_outcome(settings: dict[str, Any], says: str) -> None:
    odd = delivery(of=alert(host="a\r\nX-Evil: 1", summary="a" * 20_000, name="\ud800"))
    one = made(**settings)
    with pytest.raises(Unrenderable, match=says):
        one.request([odd])
    outcome = await one.deliver(odd)
    assert outcome.kind is OutcomeKind.RENDER
    assert says in outcome.error
    await one.close()


def test_what_the_check_finds() -> None:
    settings = webhook(
        template=Secret('{"text": "{{ summary }}"}'),
        headers=hidden(**{"X-A": "{{ hots }}", "X-B": "{{ summary }}", "X-C": "{{ summary | oneline }}"}),
    )
    found = told(settings)
    assert found[("template",)].startswith("makes no JSON: ")
    assert found[("headers", "X-A")] == "line 1: hots is unknown; did you mean host?"
    assert found[("headers", "X-B")].startswith(
        "line 1: more than 4096 characters (with an alert with quotes"
    )
    assert found[("headers", "X-C")].startswith("line 1: more than 4096 characters")
    good = hidden(**{"X-C": "{{ summary | oneline | truncate(200) }}", "Content-Type": "text/plain"})
    assert told(webhook(template=Secret("{{ summary }}"), headers=good)) == {}
    problem = hidden(**{"content-type": "application/problem+json; charset=utf-8"})
    assert ("template",) in told(webhook(template=Secret("{{ summary }}"), headers=problem))


def test_the_check_knows_of_batches() -> None:
    settings = webhook(template=Secret("{{ host | tojson }}"), headers=hidden(A="{{ host }}"))
    assert told(settings) == {}
    batched = webhook(template=settings.template, headers=settings.headers, batch=Batch())
    assert set(told(batched)) == {("template",), ("headers", "A")}


def test_a_template_that_is_none_names_the_setting() -> None:
    with pytest.raises(Unusable, match=r"destination pager: headers\.X-A: line 1: hots is unknown"):
        kind.make(webhook(headers=hidden(**{"X-A": "{{ hots }}"})))
    with pytest.raises(Unusable, match="destination pager: template: line 1: "):
        kind.make(webhook(template=Secret("{{")))

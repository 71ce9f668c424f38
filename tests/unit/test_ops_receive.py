"""The receiver for trying things out: when it fails, what it prints, what it says of signatures."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from ops import signature
from ops.receive import Failing, describe

NOW = 1_790_000_000.0
SECRET = "whsec_" + base64.b64encode(b"of the tests").decode()


def headers(
    body: bytes, *, secret: bytes = b"of the tests", at: int = int(NOW), key: str = "k"
) -> dict[str, str]:
    mac = hmac.new(secret, f"{key}.{at}.".encode() + body, hashlib.sha256).digest()
    signed = "v1," + base64.b64encode(mac).decode()
    return {"webhook-id": "k", "webhook-timestamp": str(at), "webhook-signature": signed}


def test_first_ones_fail_then_the_share() -> None:
    failing = Failing(503, first=2, rate=0.5)
    assert [failing.answer(chance) for chance in (0.9, 0.9, 0.9, 0.4)] == [503, 503, 200, 503]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, Failing(500, 0, 1.0)),
        ({"status": "429", "count": "3"}, Failing(429, 3, 0.0)),
        ({"rate": "0.2"}, Failing(500, 0, 0.2)),
        ({"count": "0"}, Failing(500, 0, 0.0)),
    ],
)
def test_told_while_it_runs(query: dict[str, str], expected: Failing) -> None:
    failing = Failing(502, 7, 0.7)
    failing.told(query)
    assert failing == expected


@pytest.mark.parametrize(
    "query", [{"status": "20"}, {"count": "-1"}, {"rate": "2"}, {"status": "x"}, {"sttus": "503"}]
)
def test_told_nonsense_changes_nothing(query: dict[str, str]) -> None:
    failing = Failing(502, 7, 0.7)
    with pytest.raises(ValueError):  # noqa: PT011 - what is said of it is the caller's, one text for all
        failing.told(query)
    assert failing == Failing(502, 7, 0.7)


@pytest.mark.parametrize(
    ("failing", "says"),
    [
        (Failing(), "200"),
        (Failing(503, 3), "503 to the next 3, then 200"),
        (Failing(503, 0, 1.0), "503 to all"),
        (Failing(429, 0, 0.2), "429 to 20% of them"),
        (Failing(429, 1, 0.2), "429 to the next 1, then 429 to 20% of them"),
    ],
)
def test_a_person_reads_what_it_will_do(failing: Failing, says: str) -> None:
    assert str(failing) == says


def test_one_line_tells_and_nothing_obeys() -> None:
    body = b'{"data":{"status":"firing","name":"disk","host":"\\u001b[2J"}}'
    head, *rest = describe("POST", "/x", 200, "k (signature right)", body).split("\n")
    assert head.endswith("POST /x -> 200 firing disk on \\x1b[2J, k (signature right)")
    assert '      "data": {' in rest
    assert describe("POST", "/", 200, "k", b"\xff\x1b").endswith("\n    \ufffd\\x1b")
    assert describe("POST", "/", 200, "k", b"[1]").endswith("\n    [\n      1\n    ]")
    assert describe("POST", "/", 200, "k", "ä\x9b\r\n".encode()).endswith("\n    ä\\x9b\\r\n    ")


def test_a_right_signature() -> None:
    assert signature.fault(headers(b"{}"), b"{}", ["another", SECRET], NOW) is None
    assert signature.fault(headers(b"{}", secret=b"plain"), b"{}", ["plain"], NOW) is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "no webhook-id, webhook-timestamp, webhook-signature"),
        (headers(b"{}", secret=b"another"), "webhook-signature matches no secret"),
        (headers(b"{}", key="another"), "webhook-signature matches no secret"),
        (headers(b"{} "), "webhook-signature matches no secret"),
        (headers(b"{}", at=int(NOW) - 301), "webhook-timestamp '1789999699' is not about now"),
        (headers(b"{}") | {"webhook-timestamp": "soon"}, "webhook-timestamp 'soon' is not about now"),
        (headers(b"{}") | {"webhook-signature": "v1a,x v1,ü"}, "webhook-signature matches no secret"),
    ],
)
def test_a_wrong_signature(given: dict[str, str], expected: str) -> None:
    assert signature.fault(given, b"{}", [SECRET], NOW) == expected


def test_a_secret_that_is_none() -> None:
    with pytest.raises(ValueError, match="not base64"):
        signature.key_of("whsec_ä")

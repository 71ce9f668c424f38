"""Units: what people write, what it means, how it prints, and that secrets stay secret."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.units import Address, Duration, Rate, Secret, Size
from dispatcher.destinations.webhook import Settings as Webhook

HIDDEN = "hunter2"
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("10s", 10),
        ("1m30s", 90),
        ("1m 30s", 90),
        ("76h", 273600),
        ("2d", 172800),
        ("1.5h", 5400),
        ("5", 5),
        (5, 5),
        (0.5, 0.5),
        (0, 0),
        ("0s", 0),
    ],
)
def test_duration(text: object, seconds: float) -> None:
    assert Duration.parse(text) == seconds


@pytest.mark.parametrize(
    "bad",
    ["", "s", "10 apples", "1e3s", "-5s", "٣s", "9" * 400 + "d", True, None, [], -1, 10**400, 4e9, NAN, INF],
)
def test_no_duration(bad: object) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        Duration.parse(bad)


@given(st.integers(0, 10 * 365 * 86400 * 1000))
def test_a_printed_duration_is_read_back(ms: int) -> None:
    duration = Duration(ms / 1000)
    assert Duration.parse(str(duration)).ms == duration.ms == ms


@pytest.mark.parametrize(
    ("text", "size"),
    [("8KiB", 8192), ("16MiB", 16 * 1024**2), ("1MB", 10**6), ("1.5KiB", 1536), ("7", 7), (7, 7), ("7B", 7)],
)
def test_size(text: object, size: int) -> None:
    assert Size.parse(text) == size


@pytest.mark.parametrize(
    "bad", ["", "lots", "8kb", "-1B", -1, 1.5, True, None, "9" * 400, 10**400, "2000GiB"]
)
def test_no_size(bad: object) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        Size.parse(bad)


@given(st.integers(0, 1024**4))
def test_a_printed_size_is_read_back(size: int) -> None:
    assert Size.parse(str(Size(size))) == size


@pytest.mark.parametrize(
    ("text", "per_second"),
    [("1/s", 1), ("1000/s", 1000), ("30/m", 0.5), ("7/h", 7 / 3600), ("1/d", 1 / 86400)],
)
def test_rate(text: str, per_second: float) -> None:
    assert Rate.parse(text) == per_second
    assert str(Rate.parse(text)) == text


@pytest.mark.parametrize("bad", ["", "5", 5, "0/s", "-1/s", "1/ms", "1/year", "nan/s", "inf/s", None, True])
def test_no_rate(bad: object) -> None:
    with pytest.raises(ValueError, match="expected a rate"):
        Rate.parse(bad)


@pytest.mark.parametrize(
    ("text", "address", "loopback"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080), True),
        ("127.8.8.8:0", ("127.8.8.8", 0), True),
        ("localhost:80", ("localhost", 80), True),
        ("[::1]:80", ("::1", 80), True),
        ("[::]:80", ("::", 80), False),
        ("0.0.0.0:80", ("0.0.0.0", 80), False),
        (":80", ("", 80), False),
        ("localhost.example:80", ("localhost.example", 80), False),
    ],
)
def test_address(text: str, address: tuple[str, int], loopback: bool) -> None:
    assert Address.parse(text) == address
    assert str(Address.parse(text)) == text
    assert Address.parse(text).loopback is loopback


@pytest.mark.parametrize(
    "bad",
    ["", "8080", "127.0.0.1", "127.0.0.1:", "::1:80", "[h]:80", "h:65536", "a b:1", "http://h:80", "h:-1"],
)
def test_no_address(bad: str) -> None:
    with pytest.raises(ValueError, match="expected address:port"):
        Address.parse(bad)


def test_what_was_given_is_never_in_the_message() -> None:
    for parse in (Duration.parse, Size.parse, Rate.parse):
        with pytest.raises(ValueError, match="expected") as caught:
            parse(HIDDEN)
        assert HIDDEN not in str(caught.value)


def test_a_secret_gives_its_text_only_to_who_asks_for_it() -> None:
    secret = Secret(HIDDEN)
    assert secret.reveal() == HIDDEN
    assert type(secret.reveal()) is str


def test_a_secret_prints_as_stars(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret(HIDDEN)
    destination = Webhook(name="a", type="webhook", url=secret, secrets=[secret], headers={"X-Key": secret})
    logging.getLogger("test").warning("%s %r", secret, destination)
    shown = [str(secret), repr(secret), f"{secret}", f"{secret!r}", str.format("{}", secret), f"{[secret]}"]
    for text in [*shown, repr(destination), caplog.text]:
        assert "***" in text
        assert HIDDEN not in text


def test_a_secret_does_not_join_or_encode() -> None:
    secret = Secret(HIDDEN)
    attempts: list[Callable[[], object]] = [
        lambda: "".join([secret]),  # type: ignore[list-item]  # the fault this test is about
        lambda: "a" + secret,  # type: ignore[operator]  # the fault this test is about
        lambda: json.dumps(secret),
        lambda: msgspec.json.encode(secret),
        lambda: msgspec.to_builtins(secret),
        lambda: secret[:3],  # type: ignore[index]  # the fault this test is about
    ]
    for attempt in attempts:
        with pytest.raises(TypeError):
            attempt()


def test_secrets_compare_by_their_text() -> None:
    assert Secret("a") == Secret("a") == copy.deepcopy(Secret("a"))
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1
    assert not Secret("")

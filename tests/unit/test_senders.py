"""Who sends: tokens as senders show them, and what is said to those who don't."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence

import pytest
from multidict import CIMultiDict

from common.http import Problem
from common.reload import Refused
from common.settings import Ingest, Settings, Token
from common.units import Rate, Secret
from ingest import senders
from ingest.senders import ANONYMOUS, Sender, Senders, too_open
from ingest.serve import Service

AGENTS, PROBES = "agents-own-token", "t0ken~of+probes/=="


def token(name: str, text: str, rate: Rate | None = None) -> Token:
    return Token(name=name, sha256=Secret(hashlib.sha256(text.encode()).hexdigest()), rate=rate)


KNOWN = Senders([token("agents", AGENTS, Rate(7)), token("probes", PROBES)])


def of(*values: str, known: Senders = KNOWN) -> Sender:
    return known.of(CIMultiDict([("Authorization", value) for value in values]))


def refusal(*values: str) -> Problem:
    with pytest.raises(Problem) as refused:
        of(*values)
    return refused.value


def challenges(problem: Problem) -> Sequence[str]:
    assert isinstance(problem.headers, CIMultiDict)
    return list(problem.headers.getall("WWW-Authenticate"))


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "value",
    [
        f"Bearer {AGENTS}",
        f"bearer {AGENTS}",
        f"BEARER   {AGENTS} ",
        basic(f"whoever:{AGENTS}"),
        basic(f":{AGENTS}"),
        basic(f"x:{AGENTS}").replace("Basic", "bAsIc"),
    ],
)
def test_a_token_that_is_known(value: str) -> None:
    assert of(value) == Sender("agents", 7.0)
    assert of(value, value).name == "agents"


def test_each_has_its_own_name_and_rate() -> None:
    assert of(f"Bearer {PROBES}") == Sender("probes", None)


@pytest.mark.parametrize(
    "values", [(), ("",), (AGENTS,), (f"Digest {AGENTS}",), (f"Token {AGENTS}",), (f"Bearer{AGENTS}",)]
)
def test_who_shows_none_is_told_how(values: tuple[str, ...]) -> None:
    problem = refusal(*values)
    assert problem.status == 401
    assert challenges(problem) == ['Bearer realm="redispatch"', 'Basic realm="redispatch"']
    assert AGENTS not in problem.detail


@pytest.mark.parametrize(
    "value",
    [
        f"Bearer {AGENTS}x",
        f"Bearer {AGENTS[:-1]}",
        f"Bearer {AGENTS.upper()}",
        f"Bearer {AGENTS} {AGENTS}",
        f"Bearer {AGENTS}, Bearer {AGENTS}",
        f'Bearer "{AGENTS}"',
        "Bearer",
        "Bearer ",
        "Bearer \udcff\udcfe",
        "Bearer täken",
        f"Bearer {hashlib.sha256(AGENTS.encode()).hexdigest()}",
        basic(AGENTS),
        basic(f"{AGENTS}:"),
        f"Basic {AGENTS}",
        "Basic !!!",
        "Basic \udcff",
        "Basic",
    ],
)
def test_a_token_that_is_not_known_is_said_to_be(value: str) -> None:
    problem = refusal(value)
    assert problem.status == 401
    assert challenges(problem)[0] == 'Bearer realm="redispatch", error="invalid_token"'
    assert AGENTS not in problem.detail


def test_two_that_differ_are_400() -> None:
    for first, second in ((AGENTS, PROBES), (AGENTS, "x"), ("x", AGENTS)):
        assert refusal(f"Bearer {first}", f"Bearer {second}").status == 400


def test_without_tokens_nobody_needs_one() -> None:
    nobody = Senders()
    assert of(known=nobody) is ANONYMOUS
    assert of("Bearer x", "Bearer y", known=nobody) is ANONYMOUS


def test_all_are_compared_whichever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first, the last, none: the same number of comparisons, each of them over in constant time."""
    compared = []

    def count(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(senders, "compare_digest", count)
    for value in (AGENTS, PROBES, "none"):
        compared.clear()
        if value == "none":
            refusal(f"Bearer {value}")
        else:
            of(f"Bearer {value}")
        assert len(compared) == 2


def test_a_hash_in_capitals_is_the_same() -> None:
    digest = hashlib.sha256(AGENTS.encode()).hexdigest().upper()
    known = Senders([Token(name="a", sha256=Secret(digest))])
    assert of(f"Bearer {AGENTS}", known=known).name == "a"


@pytest.mark.parametrize("listen", ["0.0.0.0:80", ":80", "[::]:80"])
async def test_beyond_loopback_it_wants_tokens(listen: str) -> None:
    tokens = [token("agents", AGENTS)]
    opened = Settings(ingest=Ingest(listen=listen, allow_anonymous=True))
    assert too_open(opened) is None
    assert too_open(Settings(ingest=Ingest(listen=listen), tokens=tokens)) is None
    assert too_open(Settings()) is None
    service = Service(opened)
    with pytest.raises(Refused, match=r"^ingest\.listen: anybody who reaches this address may send alerts"):
        await service.take(Settings(ingest=Ingest(listen=listen)))
    await service.close()

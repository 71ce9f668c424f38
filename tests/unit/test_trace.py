"""W3C Trace Context, as the standard has it: what is taken, what counts as absent, and what is sent on."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from msgspec.structs import replace
from multidict import CIMultiDict

from common import keys, trace
from common.outcomes import Outcome, OutcomeKind
from common.policy import retry_policy
from dispatcher import deliver as module
from dispatcher.deliver import Deliverer
from dispatcher.destinations.base import Delivery
from dispatcher.destinations.webhook import Webhook
from dispatcher.entry import Entry, read
from dispatcher.trouble import Trouble
from tests.support.deliveries import delivery, webhook
from tests.unit.test_tend import replica

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def taken(*parents: str, state: tuple[str, ...] = ()) -> str | None:
    headers = CIMultiDict([("TraceParent", each) for each in parents])
    headers.extend([("tracestate", each) for each in state])
    return trace.taken(headers)


@pytest.mark.parametrize(
    ("parent", "told"),
    [
        (PARENT, PARENT),
        (f"  {PARENT}\t", PARENT),
        (f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-00"),
        (f"00-{TRACE}-{SPAN}-03", f"00-{TRACE}-{SPAN}-03"),
        (f"00-{TRACE}-{SPAN}-ff", f"00-{TRACE}-{SPAN}-03"),
        (f"cc-{TRACE}-{SPAN}-01", PARENT),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-brings", PARENT),
    ],
)
def test_what_is_taken(parent: str, told: str) -> None:
    assert taken(parent) == told
    assert trace.stored(told.encode()) == told


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "00",
        PARENT[:-1],
        PARENT + "0",
        PARENT + "-more",
        PARENT.upper(),
        PARENT.replace("-", "_"),
        f"ff-{TRACE}-{SPAN}-01",
        f"0g-{TRACE}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"cc-{TRACE}-{SPAN}-01-" + "x" * 10_000,
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-\u0661\u0661",
        PARENT + "\n",
        "\udcff" * 55,
        "x" * 1_000_000,
    ],
    ids=lambda parent: ascii(parent[:60]),
)
def test_what_counts_as_absent(parent: str) -> None:
    assert taken(parent) is None


def test_none_and_several() -> None:
    assert taken() is None
    assert taken(PARENT, PARENT) is None


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (("a=1",), "a=1"),
        (("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",), "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        ((" a=1 , b=2", "", "t@v=!~ x"), "a=1,b=2,t@v=!~ x"),
        ((",".join(f"k{n}=v" for n in range(32)),), ",".join(f"k{n}=v" for n in range(32))),
        ((",".join(f"k{n}=v" for n in range(33)),), ""),
        (("a=1,a=2",), ""),
        (("A=1",), ""),
        (("a",), ""),
        (("a=1,b=\x01",), ""),
        (("a=" + "x" * 256, "b=" + "x" * 256), ""),
        (("a=\r\nx: y",), ""),
        (("a=ä",), ""),
    ],
    ids=lambda part: ascii(part)[:40],
)
def test_a_state_that_is_wrong_is_left_out_alone(state: tuple[str, ...], told: str) -> None:
    context = taken(PARENT, state=state)
    assert context == (f"{PARENT} {told}" if told else PARENT)
    assert trace.stored(context.encode()) == context
    assert trace.headers(context) == {"traceparent": PARENT} | ({"tracestate": told} if told else {})


def test_a_child_is_of_the_same_trace() -> None:
    ids = set()
    for _ in range(100):
        child = trace.child(f"{PARENT} a=1")
        found = re.fullmatch(rf"00-{TRACE}-([0-9a-f]{{16}})-01 a=1", child)
        assert found
        ids.add(found[1])
        assert trace.stored(child.encode()) == child
    assert len(ids) == 100
    assert SPAN not in ids


@pytest.mark.parametrize(
    "field", [b"", b"x", b"\xff" * 55, PARENT.encode() + b" a=\r\nx: y", PARENT.encode() + b" "]
)
def test_what_an_entry_says_is_looked_at(field: bytes) -> None:
    """Anybody may write to a stream; nothing there is a reason to lose an alert, or gets into a header."""
    stored = {
        b"key": b"k",
        b"alert": b'{"incident":"i","host":"h","name":"n","timestamp":1}',
        b"first_at": b"1",
    }
    assert read(Entry("1-1", {**stored, b"trace": field})).trace is None
    assert read(Entry("1-1", {**stored, b"trace": PARENT.encode()})).trace == PARENT


class Kind:
    """Remembers what it is given."""

    def __init__(self) -> None:
        self.given: list[Delivery] = []

    def deliver(self, each: Delivery) -> Outcome:
        self.given.append(each)
        return Outcome(OutcomeKind.DELIVERED)

    def deliver_batch(self, several: list[Delivery]) -> Outcome:
        self.given += several
        return Outcome(OutcomeKind.DELIVERED)


OTHER = f"00-{'1' * 32}-{SPAN}-01"
SIBLING = f"00-{TRACE}-{'1' * 16}-01"


async def given(monkeypatch: pytest.MonkeyPatch, *contexts: str | None) -> list[Delivery]:
    """What a destination sees of deliveries with these traces, together in one request."""
    kind: Any = Kind()
    monkeypatch.setattr(module, "make", lambda _: kind)
    told: list[Any] = []
    async with asyncio.TaskGroup() as tasks:
        shared = replica(tasks)
        trouble = Trouble(shared, "pager", keys.Destination("redispatch", "pager"))
        deliverer = Deliverer(shared, webhook(), retry_policy(webhook()), told.append, trouble)
        members = [(Entry("1-1", {}), replace(delivery(), trace=context)) for context in contexts]
        await deliverer.attempt(members)
        if len(members) == 1:
            deliverer.deliver(*members[0])
    assert {item.delivery.trace for item in told} == set(contexts)
    seen: list[Delivery] = kind.given
    return seen


async def test_each_attempt_has_a_span_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = [each.trace or "" for each in await given(monkeypatch, PARENT)]
    assert trace.trace_id(first) == trace.trace_id(second) == TRACE
    assert len({first, second, PARENT}) == 3
    assert [each.trace for each in await given(monkeypatch, None)] == [None, None]


@pytest.mark.parametrize(
    ("contexts", "one"),
    [((PARENT, SIBLING), True), ((PARENT, OTHER), False), ((PARENT, None), False), ((None, None), False)],
)
async def test_a_batch_has_the_trace_that_all_are_of(
    monkeypatch: pytest.MonkeyPatch, contexts: tuple[str | None, ...], one: bool
) -> None:
    seen = await given(monkeypatch, *contexts)
    assert len({each.trace for each in seen}) == 1
    headers = Webhook(webhook()).request(seen).headers
    assert ("traceparent" in headers) is one
    if one:
        assert headers["traceparent"].startswith(f"00-{TRACE}-")
        assert headers["traceparent"] not in contexts
